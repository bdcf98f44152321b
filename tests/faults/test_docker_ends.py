"""What ends behind the back of a mesh whose sandboxes are containers: it is told, and the next sandbox is made."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync, ProcessAsync, errors
from sandmeshd.drivers.engine.container_config import container_name
from sandmeshd.drivers.engine.runtimes import DriverName
from tests.engine import Daemon, query
from tests.faults.containers import Docker
from tests.faults.leftovers import wait_until_ended
from tests.faults.world import Shape, World, open_world

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(300)]

UNTIL = "echo up; until [ -e go ]; do sleep 0.05; done; echo went on"
HOG = "import mmap; m = mmap.mmap(-1, 1 << 29); m.write(b'x' * (1 << 29))"
MORE_BYTES = 96 << 20
GROUPS = {"memory.usage_in_bytes": "memory.limit_in_bytes", "memory.current": "memory.max"}
"""What a control group has, and what it may have, by either version."""


def of_engine(world: World, daemon: Daemon, box: BaseSandboxAsync) -> Any:
    """Return the engine's description of a box's container."""
    return query(daemon.url, f"/containers/{container_name(world.settings.mesh_id, box.sandbox_id)}/json")


async def opened(world: World) -> BaseSandboxAsync:
    return await BaseSandboxAsync(base_url=world.addresses(), timeout=60).start()


async def waiting(box: BaseSandboxAsync) -> ProcessAsync:
    """Start a process that stays until it is let go."""
    process = await box.processes.start(UNTIL)
    await process.wait_for_log("up")
    return process


async def lost(box: BaseSandboxAsync, process: ProcessAsync) -> str:
    """Wait until a process is lost with its sandbox; give why."""
    with pytest.raises(errors.SandboxLost) as caught:
        await process.wait(60)
    await box.close()
    return caught.value.facts["detail"]


async def _a_killed_driver_finds_its_sandboxes_again(world: World, daemon: Daemon) -> None:
    box = await opened(world)
    await box.run_ipython_cell("kept = 1")
    process = await waiting(box)
    await world.programs["driver1"].kill()
    await world.programs["driver1"].start()
    await box.run_shell_command("touch go")
    await process.wait_for_log("went on", 60)
    assert (await process.wait(60)).exit_code == 0
    assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
    await box.close()


async def _a_killed_agent_is_told(world: World, daemon: Daemon) -> None:
    box = await opened(world)
    process = await waiting(box)
    os.kill(of_engine(world, daemon, box)["State"]["Pid"], signal.SIGKILL)
    assert "signal 9" in await lost(box, process)


async def _a_container_that_an_operator_removes_is_told(world: World, daemon: Daemon) -> None:
    box = await opened(world)
    process = await waiting(box)
    await asyncio.to_thread(query, daemon.url, f"/containers/{of_engine(world, daemon, box)['Id']}?force=1", "DELETE")
    assert "signal 9" in await lost(box, process)


async def _memory_that_runs_out_is_told(world: World, daemon: Daemon) -> None:
    box = await opened(world)
    process = await waiting(box)
    leave_little_memory(of_engine(world, daemon, box)["Id"])
    if world.runtime.name == "gvisor":
        # Of what is inside the machine sees one process, which is a kernel.
        filling = asyncio.create_task(box.run_shell_command(f"python3 -c {HOG!r}"))
        assert "signal 9, out of memory" in await lost(box, process)
        with pytest.raises(errors.SandboxLost):
            await filling
        return
    done = await box.run_shell_command(f"python3 -c {HOG!r}")
    # It has the bound of a sandbox whose creator stated none.
    assert "The sandbox ran out of memory" in done.stderr
    await box.run_shell_command("touch go")
    assert (await process.wait(60)).exit_code == 0
    await box.close()


def leave_little_memory(container_id: str) -> None:
    """Limit a container to little more than it uses."""
    for used, most in GROUPS.items():
        for found in Path("/sys/fs/cgroup").glob(f"**/*{container_id}*/{used}"):
            found.with_name(most).write_text(str(int(found.read_text()) + MORE_BYTES))


async def _an_engine_that_is_away_is_told_and_one_that_is_back_serves(world: World, daemon: Daemon) -> None:
    box = await opened(world)
    process = await waiting(box)
    await asyncio.to_thread(daemon.kill)
    try:
        with pytest.raises(errors.RuntimeUnavailable, match="does not answer"):
            await opened(world)
        assert (await box.run_ipython_cell("print(6 * 7)")).stdout == "42\n"
    finally:
        await asyncio.to_thread(daemon.start)
    # Its containers end when it starts again; how, depends on how soon.
    assert await lost(box, process)


async def _an_engine_that_was_stopped_is_the_reason_of_what_ended_with_it(world: World, daemon: Daemon) -> None:
    box = await opened(world)
    process = await waiting(box)
    await asyncio.to_thread(daemon.end)
    await asyncio.to_thread(daemon.start)
    assert (await lost(box, process)).startswith("the engine stopped (")


FAULTS = (
    _an_engine_that_was_stopped_is_the_reason_of_what_ended_with_it,
    _an_engine_that_is_away_is_told_and_one_that_is_back_serves,
    _a_killed_driver_finds_its_sandboxes_again,
    _a_killed_agent_is_told,
    _a_container_that_an_operator_removes_is_told,
    _memory_that_runs_out_is_told,
)


@pytest.mark.parametrize("driver_name", ["docker", pytest.param("gvisor", marks=pytest.mark.needs("runsc"))])
async def test_whatever_ends_is_told_and_the_next_sandbox_is_made(
    tmp_path: Path, served: tuple[str, Daemon | None], driver_name: DriverName
) -> None:
    _, daemon = served
    if daemon is None:
        pytest.skip("an engine of the tests' own is killed here; SANDMESH_TEST_DOCKER_URL names another")
    async with open_world(tmp_path, shape=Shape(runtime=Docker(daemon, driver_name))) as world:
        for fault in FAULTS:
            await fault(world, daemon)
            async with await opened(world) as box:
                assert (await box.run_ipython_cell("print(6 * 7)")).stdout == "42\n"
        assert not await wait_until_ended(world)
