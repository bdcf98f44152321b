"""Opens the door."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.door import E2bDoor


@asynccontextmanager
async def open_door(
    mesh: MeshAddress, secret: str, domain: str | None, folder: Path, base_image: str = ""
) -> AsyncGenerator[E2bDoor]:
    """Serve E2B's clients for a mesh until the block ends.

    `secret` makes the tokens of sandboxes, `domain` is what the names of their ports end in, `folder` keeps the names
    of what clients build.
    """
    clients = MeshClients(mesh)
    door = E2bDoor(clients, secret, domain, folder, base_image)
    try:
        yield door
    finally:
        await door.close()
        await clients.close()
