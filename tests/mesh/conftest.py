"""A whole mesh in this process, on real sockets, with its own store and sandboxes."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from sandmeshd.mesh import Mesh, MeshSettings, open_mesh
from sandmeshd.mesh.sweeping import remove

MeshMaker = Callable[..., AbstractAsyncContextManager[Mesh]]


@asynccontextmanager
async def run_mesh(**told: object) -> AsyncGenerator[Mesh]:
    """Run a mesh of a made-up id and remove its directories afterwards."""
    settings = MeshSettings.model_validate({"mesh_id": f"test-{secrets.token_hex(5)}", "ephemeral": True, **told})
    try:
        async with open_mesh(settings, lambda message, fraction: None) as mesh:
            yield mesh
    finally:
        remove(settings.paths)


@pytest.fixture
def make_mesh() -> MeshMaker:
    """Give what runs a mesh with given settings."""
    return run_mesh


@pytest.fixture
async def mesh() -> AsyncGenerator[Mesh]:
    """Run a mesh with the default settings."""
    async with run_mesh() as running:
        yield running
