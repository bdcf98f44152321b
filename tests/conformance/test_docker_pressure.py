"""What one sandbox of an engine takes, where nobody stated a limit, while its neighbour makes calls: none fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from pydantic import ByteSize

from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandboxLost, fault_of_end
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.inside import run, run_cell
from sandmeshd.drivers.conformance.sandbox_end import watched
from sandmeshd.drivers.engine.app import open_driver
from sandmeshd.drivers.engine.gvisor.app import GvisorSettings
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.isolation.pressures import HOLDING, IN_FLIGHT, many_calls

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]

GVISOR = pytest.mark.needs("runsc")
BOUND = ByteSize(192 << 20)
WATCHES = """
import os, select
def fill():
    held = []
    try:
        while len(held) < 4000:
            held.extend(os.pipe())
        while True:
            held.append(select.epoll())
            for one in held[:4000]:
                held[-1].register(one, select.EPOLLIN)
    except OSError:
        os.write(ready, b".")
    os.read(never, 1)
first, ready = os.pipe()
never = os.pipe()[0]
for _ in range(40):
    if not os.fork():
        fill()
    os.read(first, 1)
"""
"""Watches of epoll, memory of the kernel's that no limit of a uid's descriptors holds."""


@asynccontextmanager
async def _neighbours(
    settings: DockerSettings,
) -> AsyncGenerator[tuple[Driver, pb.RuntimeSandbox, pb.RuntimeSandbox]]:
    spec = sandbox_pb2.SandboxSpec(template="filesystem")
    async with open_driver(settings) as driver:
        made = [
            await driver.create_sandbox(
                pb.CreateSandboxRequest(sandbox_id=name, mesh_id=settings.paths.mesh_id, spec=spec)
            )
            for name in ("sb_one", "sb_two")
        ]
        yield driver, made[0].sandbox, made[1].sandbox


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *((DockerSettings, what) for what in HOLDING),
        # All others are bounded by its memory, or by each process.
        pytest.param(GvisorSettings, "inotify instances", marks=GVISOR),
    ],
)
async def test_a_sandbox_of_an_engine_that_takes_all_there_is_stops_no_call_of_its_neighbour(
    paths: MeshPaths, engine: str, kind: type[DockerSettings], what: str
) -> None:
    async with _neighbours(kind(paths=paths, url=engine, ends_with_driver=True)) as (_, one, two):
        held = await run_cell(one, HOLDING[what])
        assert held.stdout == "True\n", held
        await asyncio.wait_for(many_calls(two), 240)
        assert (await run(one, "echo alive")).stdout == "alive\n"


async def test_memory_that_nobody_stated_ends_what_takes_it_in_the_kernel_too(paths: MeshPaths, engine: str) -> None:
    settings = DockerSettings(paths=paths, url=engine, ends_with_driver=True, default_memory=BOUND)
    async with _neighbours(settings) as (_, one, two):
        assert one.enforced["memory"] == "docker, cgroup: 192.0MiB by default"
        taking = asyncio.create_task(run_cell(one, WATCHES))
        await asyncio.wait_for(many_calls(two), 240)
        ended = await asyncio.wait_for(taking, 240)
        assert ended.reason == call_pb2.END_REASON_OUT_OF_MEMORY
        assert "may use 192 MiB together" in ended.message
        assert (await run(one, "echo alive")).stdout == "alive\n"


@GVISOR
async def test_memory_that_gvisors_kernel_takes_beyond_the_bound_ends_its_sandbox_alone(
    paths: MeshPaths, engine: str
) -> None:
    settings = GvisorSettings(paths=paths, url=engine, ends_with_driver=True, default_memory=BOUND)
    async with _neighbours(settings) as (driver, one, two), watched(driver, paths.mesh_id) as changes:
        assert one.enforced["memory"] == "docker, cgroup: 192.0MiB by default"
        taking = asyncio.create_task(run_cell(one, f"{IN_FLIGHT}\nheld = fill()"))
        await asyncio.wait_for(many_calls(two), 240)
        with pytest.raises(SandboxLost):
            await asyncio.wait_for(taking, 240)
        detail = await asyncio.wait_for(_end_detail(changes), 60)
        assert detail == "signal 9, out of memory"
        assert fault_of_end(detail) == "limit"
        assert (await run(two, "echo alive")).stdout == "alive\n"


async def _end_detail(changes: AsyncGenerator[pb.WatchSandboxesResponse]) -> str:
    async for change in changes:
        if change.sandbox.state == pb.RUNTIME_STATE_ENDED:
            return change.sandbox.end_detail
    raise AssertionError("the watch ended")
