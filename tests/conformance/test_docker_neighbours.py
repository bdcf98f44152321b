"""What one sandbox of an engine takes of all that it shares with others: no call of its neighbour fails."""

from __future__ import annotations

import pytest
from benchmarks.meshes import running_mesh
from benchmarks.pressures import neighbour_calls, on_driver

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(900)]
CALLS = 50
# They end their own sandbox: docs/threat-model.md.
LEFT_OUT = {"gvisor": {"processes"}}


@pytest.mark.parametrize("driver", ["docker", pytest.param("gvisor", marks=pytest.mark.needs("runsc"))])
async def test_no_call_of_a_neighbour_on_an_engine_fails_under_a_pressure(engine: str, driver: str) -> None:
    environment = {"SANDMESH_DRIVER": driver, "SANDMESH_DOCKER_URL": engine}
    async with running_mesh(environment=environment) as mesh:
        for what, pressure in on_driver(driver).items():
            if what not in LEFT_OUT.get(driver, ()):
                _, under = await neighbour_calls(mesh, pressure, CALLS, turns=1)
                assert under.failures == [], what
