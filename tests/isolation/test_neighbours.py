"""What one sandbox takes of all that it shares with others, through a whole mesh: no call of its neighbour fails."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.pressures import neighbour_calls

from sandmesh.errors import CapabilityMissing

from .pressures import PRESSURES

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
CALLS = 50
# Nothing bounds them where sandboxes share a uid: docs/threat-model.md.
OF_ROOT = {"epoll watches"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[RunningMesh]:
    """Run a mesh of bubblewrap."""
    async with running_mesh(environment={"SANDMESH_DRIVER": "bubblewrap"}) as made:
        yield made


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.needs("root") if what in OF_ROOT else ()) for what in PRESSURES]
)
async def test_no_call_of_a_neighbour_fails_under_a_pressure(mesh: RunningMesh, what: str) -> None:
    try:
        _, under = await neighbour_calls(mesh, PRESSURES[what], CALLS, turns=1)
    except CapabilityMissing:
        # A limit of control groups, which an ordinary user may not use everywhere.
        assert os.geteuid() != 0, "root has the control groups that this limit needs"
        return
    assert under.failures == []
    assert len(under.seconds) == CALLS
