"""The mesh that a command means: the address that is stated, or this user's local mesh."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh._addresses import answers
from sandmesh._mesh import Connection, acquire, release
from sandmesh._paths import local_gateway
from sandmesh.errors import MeshUnavailable
from sandmeshd.cli.where import Where

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
