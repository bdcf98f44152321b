"""How many connections of a gRPC server one peer may have: gRPC's library counts the connections of all peers together.

The connections are this process's own descriptors. Those of a peer beyond its limit are shut down, the newest ones
first, which the library sees as their ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog

from sandmeshd.runtime.addresses import peer_network
from sandmeshd.runtime.beat import beat

log = structlog.get_logger()

INTERVAL_SECONDS: Final = 0.25
_DESCRIPTORS: Final = "/proc/self/fd"


@dataclass(frozen=True)
class _Known:
    inode: int
    peer: str
    """The network of its peer; empty if the peer is not limited."""
    number: int
    """Rises with each one that was found."""


class PeerLimit:
    """Shuts down connections to some ports of this machine that a peer has beyond `most`."""

    def __init__(self, ports: Collection[int], most: int) -> None:
        self._ports = frozenset(ports)
        self._most = most
        self._known: dict[int, _Known] = {}
        self._found = 0

    def enforce(self) -> int:
        """Count the connections of each peer, and shut down those beyond the limit; return how many."""
        descriptors = [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208 - four times a second, paths cost
        if len(descriptors) <= self._most:
            return 0
        self._known = {descriptor: known for descriptor in descriptors if (known := self._find(descriptor))}
        counts = Counter(known.peer for known in self._known.values() if known.peer)
        excess = {peer: count - self._most for peer, count in counts.items() if count > self._most}
        return sum(_shut_down(descriptor, known) for descriptor, known in self._beyond(excess)) if excess else 0

    def _find(self, descriptor: int) -> _Known | None:
        try:
            status = os.fstat(descriptor)
        except OSError:
            return None  # it was the listing's own, or is closed by now
        known = self._known.get(descriptor)
        if known is not None and known.inode == status.st_ino:
            return known
        self._found += 1
        peer = self._peer(descriptor) if stat.S_ISSOCK(status.st_mode) else ""
        return _Known(status.st_ino, peer, self._found)

    def _peer(self, descriptor: int) -> str:
        # A duplicate stays what it is while the library closes its own.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] in self._ports:
                return peer_network(connection.getpeername()[0])
        return ""

    def _beyond(self, excess: dict[str, int]) -> Iterator[tuple[int, _Known]]:
        for descriptor, known in sorted(self._known.items(), key=lambda item: item[1].number, reverse=True):
            if excess.get(known.peer, 0) > 0:
                excess[known.peer] -= 1
                yield descriptor, known


def _shut_down(descriptor: int, known: _Known) -> int:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        if os.fstat(connection.fileno()).st_ino == known.inode:
            connection.shutdown(socket.SHUT_RDWR)
            return 1
    return 0


@asynccontextmanager
async def limited_peers(ports: Collection[int], most: int) -> AsyncGenerator[None]:
    """Hold each peer to `most` connections to the ports until the block ends; loopback's are everybody's."""
    task = asyncio.create_task(_enforce_forever(PeerLimit(ports, most)))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _enforce_forever(limit: PeerLimit) -> None:
    while True:
        await beat(INTERVAL_SECONDS)
        try:
            closed = limit.enforce()
        except OSError as error:
            log.debug("connections of peers are not counted just now", error=str(error))
            continue
        if closed:
            log.warning("a peer has too many connections: the newest were closed", closed=closed)
