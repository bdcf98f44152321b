"""The plugin of the door for E2B's clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from sandmesh.errors import Denied, Unauthenticated
from sandmesh.mesh import MeshAsync
from sandmeshd.contracts.door import Door, DoorHost, DoorPlugin
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.e2b.domain import serve_names
from sandmeshd.facades.e2b.settings import E2bSettings
from sandmeshd.runtime.http import Pages

HINT: Final = (
    "E2B's clients reach it with these variables, and a key of `sandmesh token create NAME --form e2b`:\n"
    "{variables}\n"
    "  export E2B_API_KEY=..."
)


@asynccontextmanager
async def open_door(settings: E2bSettings, host: DoorHost) -> AsyncGenerator[Door]:
    """Serve E2B's clients until the block ends."""
    # A mesh without this door does without what it imports.
    opened = await asyncio.to_thread(import_module, "sandmeshd.facades.e2b.app")
    async with opened.open_door(host.mesh, host.secret(), host.folder, settings) as door:
        yield door


@asynccontextmanager
async def open_apart(mesh: MeshAddress) -> AsyncGenerator[Pages]:
    """Carry requests for ports of sandboxes to the mesh's own listener, and show the door's own token there.

    Raises:
        Denied: The token is not an administrator's.
    """
    await _check_token(mesh)
    relay = await asyncio.to_thread(import_module, "sandmeshd.facades.e2b.relay")
    async with relay.open_relay() as pages:
        yield pages


async def _check_token(mesh: MeshAddress) -> None:
    async with MeshAsync(mesh.url, mesh.token) as client:
        try:
            await client.tokens.list()
        except (Denied, Unauthenticated) as error:
            fix = "set SANDMESH_TOKEN to one of `sandmesh token create NAME --scope admin`"
            raise Denied(f"the facade's own token is not an administrator's: {fix}", {"fix": fix}) from error


DOOR = DoorPlugin(E2bSettings, open_door, HINT, serve_names, open_apart)
