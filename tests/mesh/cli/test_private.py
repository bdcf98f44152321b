"""A private mesh lives as long as the program that uses it, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mesh.conftest import Home
from tests.processes import command_of

PROGRAM = """
import json, sys
from sandmesh import BaseSandbox
box = BaseSandbox()
box.start()
print(json.dumps({"answer": box.run_ipython_cell("6*7").text.strip()}), flush=True)
sys.stdin.read()
box.close()
"""
SECONDS = 20.0


def descendants(pid: int) -> set[int]:
    """Return every process below one, by walking /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {pid}
        found |= more


async def gone(pids: set[int], timeout: float) -> set[int]:
    """Wait until processes have ended; give those that have not."""
    loop = asyncio.get_running_loop()
    ended: dict[int, asyncio.Event] = {}
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended[pid] = asyncio.Event()
        loop.add_reader(descriptor, _ended, loop, descriptor, ended[pid])
    try:
        async with asyncio.timeout(timeout):
            for event in ended.values():
                await event.wait()
    except TimeoutError:
        pass
    return {pid for pid, event in ended.items() if not event.is_set()}


def _ended(loop: asyncio.AbstractEventLoop, descriptor: int, event: asyncio.Event) -> None:
    loop.remove_reader(descriptor)
    os.close(descriptor)
    event.set()


async def start(home: Home) -> tuple[asyncio.subprocess.Process, set[int]]:
    """Run a program up to its answer; give it and all that runs below it. It ends when its standard input does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=home.environment,
    )  # fmt: skip
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    assert json.loads(line)["answer"] == "42"
    below = descendants(process.pid)
    assert len(below) >= 4, "mesh, store, sandbox and agent run"
    return process, below


async def test_a_program_needs_no_server_and_leaves_none(home: Home) -> None:
    process, below = await start(home)
    assert len(home.meshes) == 1
    await asyncio.wait_for(process.communicate(b""), SECONDS)
    assert process.returncode == 0
    assert await gone(below, SECONDS) == set()
    assert (home.meshes, home.sockets) == ([], [])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_program_takes_its_mesh_and_sandboxes_along(home: Home, number: signal.Signals) -> None:
    process, below = await start(home)
    assert len(home.meshes) == 1
    process.send_signal(number)
    await process.communicate(b"")
    assert await gone(below, SECONDS) == set()
    assert (home.meshes, home.sockets) == ([], [])


async def test_a_killed_mesh_takes_its_sandboxes_along_and_the_next_start_sweeps_its_state(home: Home) -> None:
    process, below = await start(home)
    try:
        (mesh,) = [pid for pid in below if "sandmeshd.cli.mesh.private" in command_of(pid)]
        os.kill(mesh, signal.SIGKILL)
        assert await gone(below, SECONDS) == set()
    finally:
        process.kill()
        await process.communicate(b"")
    [left] = home.meshes
    next_one, below = await start(home)
    assert left not in home.meshes
    await asyncio.wait_for(next_one.communicate(b""), SECONDS)
    assert next_one.returncode == 0
    # Its mesh ends after it, and its home goes with this test.
    assert await gone(below, SECONDS) == set()
