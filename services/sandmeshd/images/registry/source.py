"""A registry as a source of images: its mirrors first, then itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from sandmesh.errors import SandmeshError
from sandmeshd.images.documents import Descriptor
from sandmeshd.images.reference import Reference
from sandmeshd.images.registry.client import RegistryClient
from sandmeshd.images.registry.connection import open_session, url_of
from sandmeshd.images.registry.policy import mirrors_of
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.sources.source import Resolved


class RegistrySource:
    """One repository, at several places: what one does not give, the next is asked for."""

    def __init__(self, clients: list[RegistryClient]) -> None:
        self._clients = clients

    async def read_manifest(self, wanted: str) -> Resolved:
        """Return a manifest or an index; the errors are those of the registry itself."""
        for client in self._clients[:-1]:
            try:
                return await client.read_manifest(wanted)
            except SandmeshError:
                continue
        return await self._clients[-1].read_manifest(wanted)

    async def read_blob(self, blob: Descriptor, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield a blob's content from an offset on; the errors are those of the registry itself."""
        for client in self._clients[:-1]:
            try:
                async for part in client.read_blob(blob, offset):
                    offset += len(part)
                    yield part
            except SandmeshError:
                continue
            return
        async for part in self._clients[-1].read_blob(blob, offset):
            yield part


@asynccontextmanager
async def open_registry(settings: ImageSettings, reference: Reference) -> AsyncGenerator[RegistrySource]:
    """Open the registry of an image, and its mirrors."""
    async with AsyncExitStack() as stack:
        clients: list[RegistryClient] = []
        own = url_of(reference.registry)
        for url in (*mirrors_of(settings, reference.registry), own):
            session = await stack.enter_async_context(open_session(settings, url, is_mirror=url != own))
            clients.append(RegistryClient(settings, session, url, reference))
        yield RegistrySource(clients)
