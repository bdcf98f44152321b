"""Drivers that are killed at any moment, while their cloud throttles, loses answers and cuts links."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from tests.clouds.function_compute import StandIn

from .conftest import SECRET

KILLS = 4
pytestmark = pytest.mark.needs("root")


@asynccontextmanager
async def killed(settings: FcSettings, folder: Path) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a driver, and kill it when the block ends."""
    program = "tests.unit.drivers.clouds.storm_program"
    arguments = (settings.paths.mesh_id, str(folder), settings.endpoint, SECRET)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", program, *arguments, stdout=pipe)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_nothing_is_left_or_billed_after_a_storm_with_kills(
    cloud: StandIn, settings: FcSettings, tmp_path: Path
) -> None:
    async with asyncio.timeout(240):
        for made in range(1, KILLS + 1):
            cloud.throttled.update({"CreateSession": 2, "DeleteSession": 1})
            cloud.lost.update({"CreateSession": 1, "DeleteSession": 1})
            async with killed(settings, tmp_path) as driver:
                assert driver.stdout is not None
                # The first are made, and others begun.
                for _ in range(made):
                    while not (line := await driver.stdout.readline()).startswith(b"made"):
                        assert line, "the driver ended by itself"
                cloud.cut()
        cloud.throttled.clear()
        cloud.lost.clear()
        assert cloud.living, "the storm left nothing to find"
        mesh_id = settings.paths.mesh_id
        async with open_plugin("fc", settings) as driver:
            listed = (await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=mesh_id))).sandboxes
            assert pb.RUNTIME_STATE_RUNNING in {one.state for one in listed}
            deletes = (driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=one.sandbox_id)) for one in listed)
            await asyncio.gather(*deletes)
            left = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=mesh_id))
            assert list(left.sandboxes) == []
        assert cloud.living == []
        assert [one for one in cloud.ledger if one.instance is not None and one.instance.exit_code is None] == []
