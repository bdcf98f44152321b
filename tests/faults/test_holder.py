"""A holder that sleeps past its lease: when it wakes it may do nothing any more."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sandmesh import SandboxAsync
from sandmesh.errors import SandboxLost, SandboxNotFound
from tests.faults import holder
from tests.faults.world import World, open_world

REFUSALS = {"LeaseLost", "SandboxLost", "SandboxNotFound"}


@pytest.mark.timeout(120)
async def test_a_holder_that_was_stopped_past_its_lease_is_refused(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        program = await asyncio.create_subprocess_exec(
            sys.executable, holder.__file__, world.addresses(), "5",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await _stop_and_wake(world, program)
        finally:
            with suppress(ProcessLookupError):
                program.kill()
            await program.wait()


async def _stop_and_wake(world: World, program: asyncio.subprocess.Process) -> None:
    assert program.stdout is not None
    assert program.stdin is not None
    sandbox_id = (await program.stdout.readline()).decode().strip()
    program.stdin.write(b"one\n")
    assert await program.stdout.readline() == b"ran\n"
    os.kill(program.pid, signal.SIGSTOP)
    await gone(world, sandbox_id)
    # The line waits for it: its call is the first thing that it does when it wakes.
    program.stdin.write(b"two\n")
    os.kill(program.pid, signal.SIGCONT)
    assert (await program.stdout.readline()).decode().strip() in REFUSALS
    program.stdin.close()


async def gone(world: World, sandbox_id: str) -> None:
    """Wait until the mesh has taken a sandbox back."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with SandboxAsync(sandbox_id=sandbox_id, base_url=world.addresses(), timeout=10) as box:
                    if "GONE" in (await box.get_info())["state"]:
                        return
            except SandboxNotFound:
                return
            except SandboxLost as lost:
                if lost.facts.get("state") != "STOPPING":
                    return
            await asyncio.sleep(0.2)
