"""Opens the door."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.door import E2bDoor
from sandmeshd.facades.e2b.settings import E2bSettings


@asynccontextmanager
async def open_door(mesh: MeshAddress, secret: str, folder: Path, settings: E2bSettings) -> AsyncGenerator[E2bDoor]:
    """Serve E2B's clients for a mesh until the block ends.

    `secret` makes the tokens of sandboxes, `folder` keeps the names of what clients build, and their webhooks.
    """
    clients = MeshClients(mesh)
    door = E2bDoor(clients, secret, folder, settings)
    try:
        yield door
    finally:
        await door.close()
        await clients.close()
