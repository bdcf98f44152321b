"""The five steps of docs/observability.md from "it is slow" to the cause, each on a planted fault."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync
from tests.image_roots import busybox_root, write_image
from tests.mesh.conftest import run_mesh

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "observability.md").read_text()
STEPS = PAGE.partition("## It is slow")[2].partition("## Logs")[0]
WAIT_SECONDS = 1.0


async def _sandmesh(address: str, command: str, sandbox_id: str) -> str:
    """Run a command as the page has it, and return what it prints."""
    assert f"`{command}`" in STEPS
    arguments = command.replace("SANDBOX", sandbox_id).removeprefix("time ").split()[1:]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandmeshd.cli.user", *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "SANDMESH_ADDRESS": address},
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def _cpu(address: str, sandbox_id: str) -> float:
    """Cores of processor time that the sandbox takes, as `sandmesh stats` prints them."""
    header, row = (await _sandmesh(address, "sandmesh stats SANDBOX", sandbox_id)).splitlines()
    end = header.index("CPU") + len("CPU")
    return float(row[end - 6 : end])


def _phases(printed: str) -> dict[str, float]:
    return {name: float(seconds) for name, seconds in re.findall(r"(\w+) ([\d.]+) s\b", printed)}


async def _created(address: str, box: BaseSandboxAsync) -> dict[str, float]:
    """Return what a create's time went to, as `sandmesh events` prints it."""
    return _phases(await _sandmesh(address, "sandmesh events SANDBOX", box.sandbox_id))


@pytest.mark.needs("root")
async def test_a_create_that_waits_or_pulls_is_told_by_its_events(tmp_path: Path) -> None:
    image = write_image(tmp_path / "image", busybox_root())
    async with run_mesh(allocator={"capacity": 1}) as mesh:
        address = mesh.addresses[0]
        # Without a fault neither step finds one: nothing waited, and nothing was pulled.
        async with BaseSandboxAsync(base_url=address) as holder:
            well = await _created(address, holder)
            assert "queue" not in well
            assert "pull" not in well
            waiting = asyncio.create_task(BaseSandboxAsync(base_url=address, image=image).start())
            # The queue is full for a second, which is longer than the other phases of a create take.
            await asyncio.sleep(WAIT_SECONDS + 5 * sum(well.values()))
        async with await waiting as box:
            found = await _created(address, box)
            # 1: it waited for room, most of the time. 2: it pulled the image.
            assert found["queue"] == max(found.values())
            assert found["pull"] > 0
            assert {"place", "start"} < set(found)
        # An image is pulled once.
        async with BaseSandboxAsync(base_url=address, image=image) as again:
            found = await _created(address, again)
            assert "pull" not in found


async def test_a_slow_program_a_limit_and_a_pause_are_told_apart() -> None:
    async with run_mesh() as mesh, BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        address = mesh.addresses[0]
        # 3: the program sleeps, and a call with nothing to do is over before it.
        slow = asyncio.create_task(box.run_shell_command("sleep 20"))
        await _sandmesh(address, "time sandmesh exec SANDBOX true", box.sandbox_id)
        assert not slow.done()
        slow.cancel()
        # 4: something in the sandbox takes all that it may, which is little where the machine has no more to give.
        await box.stats()
        await asyncio.sleep(WAIT_SECONDS)
        idle = await _cpu(address, box.sandbox_id)
        await box.processes.start("for n in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait")
        await box.stats()
        await asyncio.sleep(WAIT_SECONDS)
        assert await _cpu(address, box.sandbox_id) > 4 * max(idle, 0.01)
        # 5: the call wakes it; before there was nothing to wake from.
        events = await _sandmesh(address, "sandmesh events SANDBOX", box.sandbox_id)
        assert not re.search(r"paused|resumed", events)
        async with MeshAsync(address) as client:
            await client.sandboxes.pause(box.sandbox_id)
        await box.run_shell_command("true")
        events = await _sandmesh(address, "sandmesh events SANDBOX", box.sandbox_id)
        assert re.search(r"paused.*\n.*resumed", events)
