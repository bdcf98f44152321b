"""Drivers that are killed at any moment, while their cloud throttles, loses answers and cuts links."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.settings import CloudSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.clouds import agent_run, function_compute
from tests.clouds.authorities import trusted
from tests.clouds.region import Region
from tests.unit.agent.sandbox import Ground

from .asking import delete, listed
from .conftest import SECRET, values_of

KILLS = 4
pytestmark = pytest.mark.needs("root")
Serve = Callable[[Path, Ground], AbstractAsyncContextManager[Region]]


@pytest.fixture(params=[function_compute.stand_in, agent_run.stand_in], ids=["fc", "agentrun"])
async def region(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> AsyncIterator[Region]:
    serve: Serve = request.param
    async with serve(tmp_path, ground) as made:
        with trusted(tmp_path):
            yield made


@pytest.fixture
def of_region(region: Region, paths: MeshPaths) -> CloudSettings:
    kind = AgentRunSettings if isinstance(region, agent_run.StandIn) else FcSettings
    return kind.model_validate(values_of(region, paths))


@asynccontextmanager
async def killed(settings: CloudSettings, folder: Path) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a driver, and kill it when the block ends."""
    program = "tests.unit.drivers.clouds.storm_program"
    arguments = (settings.driver, settings.paths.mesh_id, str(folder), settings.endpoint, SECRET)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", program, *arguments, stdout=pipe)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_nothing_is_left_or_billed_after_a_storm_with_kills(
    region: Region, of_region: CloudSettings, tmp_path: Path
) -> None:
    async with asyncio.timeout(240):
        for made in range(1, KILLS + 1):
            region.throttled.update({region.mutations[-2]: 2, region.mutations[-1]: 1})
            region.lost.update(dict.fromkeys(region.mutations, 1))
            async with killed(of_region, tmp_path) as driver:
                assert driver.stdout is not None
                # The first are made, and others begun.
                for _ in range(made):
                    while not (line := await driver.stdout.readline()).startswith(b"made"):
                        assert line, "the driver ended by itself"
                region.cut()
        region.throttled.clear()
        region.lost.clear()
        assert region.living, "the storm left nothing to find"
        async with open_plugin(of_region.driver, of_region) as driver:
            found = await listed(driver, of_region)
            assert pb.RUNTIME_STATE_RUNNING in {one.state for one in found}
            await asyncio.gather(*(delete(driver, one.sandbox_id) for one in found))
            deleted = time.time()
            assert await listed(driver, of_region) == []
        # The stand-in's own ledger, of every session that was billed for any time.
        assert len(region.ledger) >= KILLS
        assert [one.resource for one in region.ledger if not 0 < one.ended <= deleted] == []
        assert region.running == []
