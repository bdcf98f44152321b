"""The mesh that a command means: the address that is stated, or this user's local mesh."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh._client.addresses import answers
from sandmesh._client.connection import Connection, acquire, release
from sandmesh.errors import MeshUnavailable
from sandmesh.shared.paths import local_gateway
from sandmeshd.cli.terminal.mesh_option import Where

SECONDS = 10.0


def find_address(base_url: str | None) -> str | None:
    """Give the address that is stated, else the local mesh's socket where somebody answers there, else None."""
    if base_url:
        return base_url
    local = local_gateway()
    return f"unix://{local}" if answers(local) else None


@asynccontextmanager
async def connected(where: Where) -> AsyncGenerator[Connection]:
    """Connect to the mesh that is meant; none is started for it.

    Raises:
        MeshUnavailable: No address is stated and no local mesh runs.
    """
    address = find_address(where.base_url)
    if address is None:
        fix = "start one with `sandmesh up -d`, or name one by --base-url or SANDMESH_ADDRESS"
        raise MeshUnavailable(f"no mesh of this user runs here: {fix}", {"fix": fix})
    mesh = await acquire(address, where.token, SECONDS)
    try:
        yield mesh
    finally:
        await release(mesh)
