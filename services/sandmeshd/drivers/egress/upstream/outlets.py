"""The outlets: straight to an address, or through the proxy that the node itself needs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import unquote, urlsplit

from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.egress.policy import EgressTarget
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import WINDOW_BYTES

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_TRIED = 4
_EACH_SECONDS = 5.0
_HEAD_BYTES = 16 * 1024


class Outlet(Protocol):
    """Makes connections to addresses that were checked."""

    def takes_names(self, target: EgressTarget) -> bool:
        """Return whether an upstream proxy resolves the host."""
        ...

    async def open(self, target: EgressTarget, addresses: Sequence[str]) -> Connection:
        """Connect to the first of the addresses that answers; without any, to the target by its name.

        Raises:
            OSError: None answers.
        """
        ...


class Direct:
    """Connects to the very addresses that were checked."""

    def takes_names(self, target: EgressTarget) -> bool:
        """Return False: the node itself resolves every host."""
        return False

    async def open(self, target: EgressTarget, addresses: Sequence[str]) -> Connection:
        """Connect to the first that answers.

        Raises:
            OSError: None answers.
        """
        failure = OSError("it has no address")
        for address in addresses[:_TRIED]:
            try:
                async with asyncio.timeout(_EACH_SECONDS):
                    return await asyncio.open_connection(address, target.port, limit=WINDOW_BYTES)
            except OSError as error:
                failure = OSError(str(error) or f"{address} does not answer")
        raise failure


class ThroughProxy:
    """Asks the node's own proxy, by address for public hosts and by name for those that a grant names."""

    def __init__(self, url: str, no_proxy: str) -> None:
        """Read where the proxy is.

        Raises:
            InvalidArgument: It is not an http:// URL.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidArgument("the egress proxy must be given as http://host:port", {"argument": "egress_proxy"})
        self._address = (parts.hostname, parts.port or 80)
        self._authorization = b""
        if parts.username:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._authorization = b"Proxy-Authorization: Basic " + base64.b64encode(login.encode()) + b"\r\n"
        self._no_proxy = no_proxy
        self._direct = Direct()

    def takes_names(self, target: EgressTarget) -> bool:
        """Return whether the upstream proxy resolves the target."""
        return not any(_is_below(target.host, entry) for entry in self._no_proxy.split(","))

    async def open(self, target: EgressTarget, addresses: Sequence[str]) -> Connection:
        """Connect through the proxy, or directly to what the node reaches without it.

        Raises:
            OSError: Nothing answers, or the proxy does not want to.
        """
        if not self.takes_names(target):
            return await self._direct.open(target, addresses)
        reader, writer = await asyncio.open_connection(*self._address, limit=_HEAD_BYTES)
        try:
            await self._ask(reader, writer, EgressTarget(addresses[0], target.port) if addresses else target)
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: EgressTarget) -> None:
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode()
        writer.write(head + self._authorization + b"\r\n")
        try:
            answer = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise OSError("the node's own proxy gave no answer") from None
        status = answer.partition(b"\r\n")[0].split(b" ", 2)
        if len(status) < 2 or status[1] != b"200":
            raise OSError(f"the node's own proxy says {b' '.join(status[1:]).decode('latin-1') or 'nothing'}")


def _is_below(host: str, entry: str) -> bool:
    domain = entry.strip().lower().removeprefix("*").removeprefix(".")
    return entry.strip() == "*" or (bool(domain) and (host == domain or host.endswith("." + domain)))


def outlet_of(settings: EgressSettings) -> Outlet:
    """Return the outlet that the settings describe.

    Raises:
        InvalidArgument: The proxy is not an http:// URL.
    """
    url = settings.proxy.get_secret_value() if settings.proxy else ""
    return ThroughProxy(url, settings.no_proxy) if url else Direct()
