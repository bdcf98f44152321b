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

from sandmeshd.runtime.paths import default_state_directory

PROGRAM = """
import json, os, sys, time
from sandmesh import BaseSandbox
box = BaseSandbox()
box.start()
print(json.dumps({"answer": box.run_ipython_cell("6*7").text.strip()}), flush=True)
if "--wait" in sys.argv:
    time.sleep(600)
box.close()
"""


def descendants(pid: int) -> set[int]:
    """Give every process below one, by walking /proc."""
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


def command_line(pid: int) -> str:
    """Give a process's arguments."""
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def meshes() -> set[str]:
    """Give the private meshes that have a directory."""
    return {path.name for path in (default_state_directory() / "meshes").glob("private-*")}


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


async def start(*options: str) -> tuple[asyncio.subprocess.Process, dict[str, str]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *options, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    return process, json.loads(line)


async def test_a_program_needs_no_server_and_leaves_none() -> None:
    before = meshes()
    process, said = await start()
    assert said["answer"] == "42"
    assert await asyncio.wait_for(process.wait(), 20) == 0
    for _ in range(200):
        if meshes() <= before:
            break
        await asyncio.sleep(0.02)
    assert meshes() <= before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_program_takes_its_mesh_and_sandboxes_along(number: signal.Signals) -> None:
    before = meshes()
    process, said = await start("--wait")
    assert said["answer"] == "42"
    below = descendants(process.pid)
    assert len(below) >= 4, "mesh, store, sandbox and agent run"
    process.send_signal(number)
    await process.wait()
    assert await gone(below, 2.0) == set()
    assert meshes() <= before


async def test_a_killed_mesh_takes_its_sandboxes_along_and_the_next_start_sweeps_its_state() -> None:
    process, _ = await start("--wait")
    try:
        below = descendants(process.pid)
        (mesh,) = [pid for pid in below if "sandmeshd.cli.private" in command_line(pid)]
        os.kill(mesh, signal.SIGKILL)
        assert await gone(below, 5.0) == set()
    finally:
        process.kill()
        await process.wait()
    before = meshes()
    next_one, _ = await start()
    await asyncio.wait_for(next_one.wait(), 20)
    assert not meshes() & before
