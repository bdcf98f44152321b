"""Meshes whose directories are theirs alone."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.runtime.user_namespaces.removal import remove_tree


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give an empty directory with a short path that every user can pass through: pytest's own is closed."""
    made = Path(tempfile.mkdtemp(prefix="sm-"))
    made.chmod(0o755)
    yield made
    remove_tree(made)


@pytest.fixture
def own_paths(folder: Path) -> MeshPaths:
    """Give the directories of a mesh with an empty cache."""
    paths = MeshPaths("unit", folder / "s", folder / "r")
    paths.make()
    return paths


@pytest.fixture
def paths() -> Iterator[MeshPaths]:
    """Give the directories of a mesh of a new id, beside the environments that this user's meshes share."""
    yield from _new_mesh()


@pytest.fixture
def more() -> Iterator[MeshPaths]:
    """Give those of another mesh."""
    yield from _new_mesh()


def _new_mesh() -> Iterator[MeshPaths]:
    made = MeshPaths(f"unit-{secrets.token_hex(5)}", default_state_directory(), default_runtime_directory())
    made.make()
    yield made
    asyncio.run(sweep_state(made))
    for root in (made.state, made.runtime):
        remove_tree(root)


async def prepare(driver: Driver, template: str = "base") -> None:
    """Build a template where no earlier run did."""
    async for _ in driver.prepare_template(pb.PrepareTemplateRequest(template=template)):
        pass


def request_of(settings: BubblewrapSettings, sandbox_id: str) -> pb.CreateSandboxRequest:
    """Give a request for a sandbox of the base template."""
    spec = sandbox_pb2.SandboxSpec(template="base")
    return pb.CreateSandboxRequest(sandbox_id=sandbox_id, mesh_id=settings.paths.mesh_id, spec=spec)


@pytest.fixture
def prepared() -> None:
    """Build the base template and the agent's tree, where no earlier test did."""
    asyncio.run(_prepare_shared())


async def _prepare_shared() -> None:
    made = MeshPaths(f"unit-{secrets.token_hex(5)}", default_state_directory(), default_runtime_directory())
    made.make()
    async with open_driver(BubblewrapSettings(paths=made)) as driver:
        await prepare(driver)
    for root in (made.state, made.runtime):
        remove_tree(root)
