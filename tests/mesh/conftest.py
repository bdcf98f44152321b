"""A whole mesh in this process, on real sockets, with its own store and sandboxes."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from sandmesh.compat.agentscope_runtime import install, uninstall
from sandmeshd.mesh import Mesh, MeshSettings, open_mesh
from sandmeshd.mesh.sweep import remove
from sandmeshd.runtime.paths import default_state_directory

MeshMaker = Callable[..., AbstractAsyncContextManager[Mesh]]


@asynccontextmanager
async def run_mesh(**values: object) -> AsyncGenerator[Mesh]:
    """Run a mesh of a made-up id and remove its directories afterwards."""
    settings = MeshSettings.model_validate({"mesh_id": f"test-{secrets.token_hex(5)}", "ephemeral": True, **values})
    try:
        async with open_mesh(settings, lambda message, fraction: None) as mesh:
            yield mesh
    finally:
        remove(settings.paths)


@pytest.fixture
def make_mesh() -> MeshMaker:
    """Return a function that runs a mesh with settings."""
    return run_mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run a mesh with the default settings, which the tests of a file share."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def fresh_mesh() -> AsyncGenerator[Mesh]:
    """Run a mesh with the default settings for one test, which counts or breaks what is in it."""
    async with run_mesh() as running:
        yield running


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run tests that share a file's mesh in the event loop that serves it."""
    is_shared = isinstance(item, pytest.Function) and bool({"mesh", "fresh_mesh"} & set(item.fixturenames))
    marker = item.get_closest_marker("asyncio")
    if is_shared and marker is not None and "loop_scope" not in marker.kwargs:
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@dataclass(frozen=True)
class Home:
    """Where private meshes keep what they have: apart from those of others, with whom they share what is built."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of programs that use it."""
        directories = {"STATE": f"{self.folder}/state", "RUNTIME": f"{self.folder}/run"}
        return {**os.environ, **{f"SANDMESH_{name}_DIRECTORY": value for name, value in directories.items()}}

    @property
    def meshes(self) -> list[str]:
        """The private meshes that have a directory."""
        return [path.name for path in self.folder.glob("state/meshes/private-*")]

    @property
    def sockets(self) -> list[Path]:
        """What there is of sockets."""
        return [path for path in self.folder.glob("run/*") if path.is_dir()]


@pytest.fixture
def home() -> Generator[Home]:
    """Give a home whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sm-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        for built in default_state_directory().glob("cache/*/[0-9a-f]*"):
            place = folder / "state" / built.relative_to(default_state_directory())
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(built)
        yield Home(folder)


@pytest.fixture
def old_paths() -> Generator[None]:
    """Make the old import paths importable for one test."""
    install()
    yield
    uninstall()


@pytest.fixture
def at_the_mesh(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point programs at the test's mesh where it has one."""
    if "mesh" in request.fixturenames:
        running: Mesh = request.getfixturevalue("mesh")
        monkeypatch.setenv("SANDMESH_ADDRESS", running.addresses[0])
