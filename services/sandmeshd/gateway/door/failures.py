"""How often addresses have shown wrong tokens lately: who guesses is not looked up again at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from sandmesh.errors import Unauthenticated
from sandmeshd.runtime.addresses import peer_network

LIMITED: Final = "limited"
BURST: Final = 30
"""The wrong tokens of an address that are looked up at once."""
SECONDS_EACH: Final = 2.0
"""After which one more is looked up."""
MOST: Final = 10_000
"""The addresses that are remembered; the one that failed longest ago is forgotten first."""


class Failures:
    """Counts wrong tokens by address; a unix socket's clients are the mesh's own, and loopback's may be a proxy's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clear: OrderedDict[str, float] = OrderedDict()

    def check(self, peer: str) -> None:
        """Check that another token of a peer may be looked up.

        Raises:
            Unauthenticated: Its address has shown too many wrong ones; the message says how long to wait.
        """
        address = source(peer)
        wait = self._clear.get(address, 0.0) - self._clock() - (BURST - 1) * SECONDS_EACH
        if wait > 0:
            message = f"too many wrong tokens came from {address}: try again in {wait:.0f} s with one that is in force"
            raise Unauthenticated(message, {"token": LIMITED})

    def note(self, peer: str) -> None:
        """Note that a peer has shown a wrong token."""
        address = source(peer)
        if address:
            clear = max(self._clear.pop(address, 0.0), self._clock()) + SECONDS_EACH
            self._clear[address] = clear
            if len(self._clear) > MOST:
                self._clear.popitem(last=False)


def source(peer: str) -> str:
    """Return the address of a gRPC peer, of an IPv6 one its network of 64 bits; empty where none is limited."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return peer_network(rest.rpartition(":")[0].strip("[]"))
