"""The HTTP listener, opened at once or when something first needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web

    Pages = Callable[[web.Application], None]
    """Adds its routes to the application, before it listens."""
else:
    Pages = Callable[[Any], None]


Note = Callable[[Sequence[str]], AbstractContextManager[None]]
"""Keeps note of addresses for the duration of a block."""


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

    def note(self, note: Note) -> None:
        """Have the addresses noted while it is open."""
        self._notes.append(note)

    async def open(self) -> tuple[str, ...]:
        """Listen, if it does not yet, and return its addresses as URLs; none where none are configured.

        Raises:
            MeshUnavailable: An address cannot be listened at.
        """
        async with self._lock:
            if self._addresses.listen and not self._bound:
                # A thread imports, so that the loop goes on.
                serving = await asyncio.to_thread(import_module, "sandmeshd.runtime.http.server")
                listening = serving.open_http(self._addresses, self._pages, self._certificate)
                self._bound = await self._stack.enter_async_context(listening)
                for note in self._notes:
                    self._stack.enter_context(note(self._bound))
        return self._bound


@asynccontextmanager
async def open_listener(
    addresses: HttpAddresses, certificate: Certificate | None = None
) -> AsyncGenerator[HttpListener]:
    """Return a listener that `open` opens; the end of the block closes it.

    Addresses that others than this machine's processes could reach serve HTTPS where there is a certificate.
    """
    async with AsyncExitStack() as stack:
        yield HttpListener(addresses, certificate, stack)
