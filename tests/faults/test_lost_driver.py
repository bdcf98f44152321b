"""A node that went down under a call, and its driver with it: the call ends and says so."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, errors
from tests.faults.world import World, open_world


@pytest.mark.timeout(180)
async def test_a_call_whose_node_went_down_ends_with_that_reason(tmp_path: Path) -> None:
    async with (
        open_world(tmp_path) as world,
        BaseSandboxAsync(base_url=world.addresses()) as box,
    ):
        process = await box.processes.start("echo up; sleep 1000")
        await process.wait_for_log("up")
        await world.programs["driver1"].kill()
        await fell_silent(world)
        # A driver that is only restarted finds its sandboxes again: they and their calls go on without it.
        assert process.result is None
        for pid in world.runtime.inside():
            # The end of a namespace's first process is that of the others.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(errors.SandboxLost) as caught:
            await process.wait(60)
        assert "the driver of its node" in caught.value.facts["detail"]


async def fell_silent(world: World) -> None:
    """Wait until the allocator has given the only driver up."""
    async with asyncio.timeout(60):
        while True:
            if "leaves the rotation" in world.log("allocator1"):
                return
            await asyncio.sleep(0.05)
