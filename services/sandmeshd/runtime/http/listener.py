"""The HTTP listener, opened at the start or when something first needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aiohttp import web

    Pages = Callable[[web.Application], None]
    """Adds its routes to the application, before it listens."""
else:
    Pages = Callable[[Any], None]


Note = Callable[[Sequence[str]], AbstractContextManager[None]]
"""Keeps note of addresses for the duration of a block."""


@dataclass(frozen=True)
class ExposedUrl:
    """Where a port of a sandbox is exposed: its token, and the origin of the gateway that carries requests there."""

    token: str
    origin: str


EXPOSED_PORT: Final[ContextVar[ExposedUrl | None]] = ContextVar("sandmesh_exposed_port", default=None)
"""The port that the current request is for, where a door found the port by a name of the door's own."""

PORT_HEADER: Final = "Sandmesh-Port-Token"
"""Names the port that a request is for, where a door that runs apart found it by a name of the door's own."""

PAGE_HEADER: Final = "Sandmesh-Page"
"""Marks the gateway's own answers to requests for ports."""


@dataclass(frozen=True)
class Certificate:
    """Files in PEM: a certificate with its chain, and its key."""

    chain: Path
    key: Path


@dataclass(frozen=True)
class HttpAddresses:
    """Where to listen: addresses, whether other processes do too, and of which ports one is taken instead of port 0."""

    listen: tuple[str, ...]
    shared: bool = False
    ports: tuple[int, int] | None = None
    always_tls: bool = False
    """Serve HTTPS on loopback too."""
    grpc: str = ""
    """The host:port to which gRPC clients are carried that come to one of these without TLS; empty: nowhere."""


class HttpListener:
    """An HTTP listener that opens on demand: a first sandbox need not wait for the import of aiohttp."""

    def __init__(self, addresses: HttpAddresses, certificate: Certificate | None, stack: AsyncExitStack) -> None:
        self._addresses = addresses
        self._certificate = certificate
        self._stack = stack
        self._pages: list[Pages] = []
        self._notes: list[Note] = []
        self._lock = asyncio.Lock()
        self._bound: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, as http://host:port or https://host:port; empty while it is closed."""
        return self._bound

    def add(self, pages: Pages) -> None:
        """Register routes, to be added when it opens."""
        self._pages.append(pages)

    def carry_grpc(self, address: str) -> None:
        """Carry gRPC clients to an address, once it opens: they may know only the HTTP address."""
        self._addresses = replace(self._addresses, grpc=address)

    def note(self, note: Note) -> None:
        """Register what notes the addresses while it is open."""
        self._notes.append(note)

    async def open(self) -> tuple[str, ...]:
        """Listen, if it does not yet, and return its addresses as URLs; none where none are configured.

        Raises:
            MeshUnavailable: An address cannot be listened at.
        """
        async with self._lock:
            if self._addresses.listen and not self._bound:
                # A thread imports, so that the loop goes on.
                self._bound = await self._listen(self._addresses, self._pages, self._certificate)
        return self._bound

    async def open_more(self, addresses: HttpAddresses, certificate: Certificate) -> tuple[str, ...]:
        """Listen at further addresses, for the same pages; return them as URLs.

        Raises:
            MeshUnavailable: An address cannot be listened at.
        """
        return await self._listen(addresses, self._pages, certificate)

    async def _listen(
        self, addresses: HttpAddresses, pages: Sequence[Pages], certificate: Certificate | None
    ) -> tuple[str, ...]:
        serving = await asyncio.to_thread(import_module, "sandmeshd.runtime.http.server")
        bound: tuple[str, ...] = await self._stack.enter_async_context(serving.open_http(addresses, pages, certificate))
        for note in self._notes:
            self._stack.enter_context(note(bound))
        return bound


@asynccontextmanager
async def open_listener(
    addresses: HttpAddresses, certificate: Certificate | None = None
) -> AsyncGenerator[HttpListener]:
    """Return a listener that `open` opens; the end of the block closes it.

    Addresses that others than this machine's processes could reach serve HTTPS where there is a certificate.
    """
    async with AsyncExitStack() as stack:
        yield HttpListener(addresses, certificate, stack)
