"""A mesh for the tests that break things around it, and what its sandboxes are."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator

import pytest

from sandmeshd.mesh import Mesh
from tests.engine import Daemon, slow_parts
from tests.faults.containers import Docker
from tests.faults.runtimes import Bubblewrap, Runtime
from tests.mesh.conftest import run_mesh

collect_ignore_glob = slow_parts()


@pytest.fixture
async def mesh() -> AsyncGenerator[Mesh]:
    """Run a mesh for a test that breaks something."""
    async with run_mesh() as running:
        yield running


ENGINES = [
    pytest.param("docker", marks=pytest.mark.needs("docker")),
    pytest.param("gvisor", marks=pytest.mark.needs("docker", "runsc")),
]


@pytest.fixture(params=ENGINES if os.environ.get("SANDMESH_TEST_DOCKER") else ["bubblewrap"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    """Return the runtime of sandboxes: bubblewrap, or each of an engine's if its tests are requested."""
    if request.param == "bubblewrap":
        return Bubblewrap()
    served: tuple[str, Daemon | None] = request.getfixturevalue("served")
    if served[1] is None:
        pytest.skip("an engine of the tests' own is struck here; SANDMESH_TEST_DOCKER_URL names another")
    return Docker(served[1], request.param)
