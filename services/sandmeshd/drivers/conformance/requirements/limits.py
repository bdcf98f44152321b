"""What a requested limit does, for every limit that the driver reports."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect, expect_equal
from sandmeshd.drivers.conformance.inside import run, run_cell
from sandmeshd.drivers.conformance.subject import Subject

NAMES = {"memory": "memory_bytes", "cpu": "cpu_millis", "pids": "pids", "file": "file_bytes", "disk": "disk_bytes"}
"""The fields of Limits, by the names that capabilities report."""

MEBIBYTE = 1 << 20
MODEST = {"memory": 256 * MEBIBYTE, "cpu": 1000, "pids": 64, "file": MEBIBYTE, "disk": 16 * MEBIBYTE}

BOMB = """
import os, time
made = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        break
    made += 1
print(made)
"""

HOG = "held = bytearray(256 << 20)"

SPIN = """
import time
begun = time.monotonic()
while time.monotonic() - begun < 2:
    pass
"""


def limits_of(**requested: int) -> sandbox_pb2.Limits:
    """Return limits by the names in capabilities."""
    return sandbox_pb2.Limits(**{NAMES[name]: value for name, value in requested.items()})


@asynccontextmanager
async def _limited(subject: Subject, driver: Driver, **requested: int) -> AsyncGenerator[pb.RuntimeSandbox | None]:
    """Yield a sandbox with limits, None where the driver does not report them all."""
    able = (await driver.get_info(pb.GetInfoRequest())).capabilities.limits
    if not requested.keys() <= able.keys():
        yield None
        return
    async with subject.sandbox(driver, limits=limits_of(**requested)) as sandbox:
        yield sandbox


async def limits_that_are_reported_are_accepted_together(subject: Subject) -> None:
    """Inspection says how each holds, and "no" of none of them."""
    async with subject.open() as driver:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities.limits
        requested = {name: value for name, value in MODEST.items() if name in able}
        async with _limited(subject, driver, **requested) as sandbox:
            expect(sandbox is not None, "it was not made")
            name = sandbox.sandbox_id if sandbox else ""
            seen = (await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=name))).sandbox.enforced
    expect_equal(
        {name: seen[name] for name in requested}, {name: able[name] for name in requested}, "how they are enforced"
    )


async def limits_that_nobody_stated_are_said_to_hold_or_not(subject: Subject) -> None:
    """Inspection names all five."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        expect(NAMES.keys() <= sandbox.enforced.keys(), f"only {dict(sandbox.enforced)} is said")


async def a_file_grows_no_larger_than_its_limit(subject: Subject) -> None:
    """Where the driver reports `file`."""
    async with subject.open() as driver, _limited(subject, driver, file=MEBIBYTE) as sandbox:
        if sandbox is not None:
            done = await run(sandbox, "head -c 2000000 /dev/zero > /workspace/large; wc -c < /workspace/large")
            expect_equal(done.stdout.strip(), str(MEBIBYTE), "the size of a file that was to be larger than the limit")


async def a_command_that_wants_too_much_memory_ends_and_the_sandbox_goes_on(subject: Subject) -> None:
    """OUT_OF_MEMORY with the limit in its text, where the driver reports `memory`."""
    async with subject.open() as driver, _limited(subject, driver, memory=64 * MEBIBYTE) as sandbox:
        if sandbox is None:
            return
        done = await run(sandbox, f"python3 -c '{HOG}'; exit $?")
        expect_equal(done.reason, call_pb2.END_REASON_OUT_OF_MEMORY, "why the command ended")
        expect("64 MiB" in done.message, f"the limit is not named: {done.message}")
        expect_equal((await run(sandbox, "echo alive")).stdout, "alive\n", "the answer afterwards")


async def a_cell_that_wants_too_much_memory_ends_and_the_next_finds_a_kernel(subject: Subject) -> None:
    """OUT_OF_MEMORY with the limit in its text, where the driver reports `memory`."""
    async with subject.open() as driver, _limited(subject, driver, memory=64 * MEBIBYTE) as sandbox:
        if sandbox is None:
            return
        done = await run_cell(sandbox, HOG)
        expect_equal(done.reason, call_pb2.END_REASON_OUT_OF_MEMORY, "why the cell ended")
        expect("64 MiB" in done.message, f"the limit is not named: {done.message}")
        expect_equal((await run_cell(sandbox, "print(6 * 7)")).stdout, "42\n", "the answer afterwards")


async def many_small_processes_that_want_too_much_memory_leave_the_sandbox_answering(subject: Subject) -> None:
    """None of them by itself is as large as what the sandbox itself needs; where the driver reports `memory`."""
    hogs = "for i in $(seq 40); do python3 -c 'import time; a = bytearray(4 << 20); time.sleep(2)' & done; wait"
    async with subject.open() as driver, _limited(subject, driver, memory=64 * MEBIBYTE) as sandbox:
        if sandbox is not None:
            await run(sandbox, f"({hogs}) >/dev/null 2>&1")
            expect_equal((await run(sandbox, "echo alive")).stdout, "alive\n", "the answer afterwards")
            expect_equal((await run_cell(sandbox, "print(6 * 7)")).stdout, "42\n", "the kernel's answer")


async def memory_that_is_full_of_files_leaves_the_sandbox_answering(subject: Subject) -> None:
    """In every place that is in memory, and in shared memory without a name; where the driver reports `memory`."""
    fill = "for place in /tmp /dev/shm ~; do head -c 99000000 /dev/zero > $place/full; done"
    keep = "import ctypes; l = ctypes.CDLL(None); l.shmat.restype = ctypes.c_void_p; "
    keep += "ctypes.memset(ctypes.c_void_p(l.shmat(l.shmget(5, 99 << 20, 0o1600), None, 0)), 1, 99 << 20)"
    async with subject.open() as driver, _limited(subject, driver, memory=64 * MEBIBYTE) as sandbox:
        if sandbox is None:
            return
        done = await run(sandbox, fill)
        expect(bool(done.stderr), "all of it went in")
        await run(sandbox, "rm -f /tmp/full /dev/shm/full ~/full")
        expect_equal((await run_cell(sandbox, "print(6 * 7)")).stdout, "42\n", "the kernel's answer afterwards")
        await run(sandbox, f"python3 -c '{keep}'")
        done = await run(sandbox, "echo alive")
        expect(done.stdout == "alive\n" or done.reason == call_pb2.END_REASON_OUT_OF_MEMORY, f"it says {done}")


async def a_fork_bomb_stays_in_its_sandbox(subject: Subject) -> None:
    """It gets no more processes than requested, and its neighbours can still fork; where the driver reports `pids`."""
    async with subject.open() as driver, _limited(subject, driver, pids=40) as bombed, subject.sandbox(driver) as other:
        if bombed is None:
            return
        made = await run(bombed, f"timeout 20 python3 -c '{BOMB}'")
        expect(0 < int(made.stdout.split()[0]) <= 40, f"{made.stdout} processes were made")
        expect_equal((await run(other, "echo $(echo $(echo a))")).stdout, "a\n", "a neighbour's answer")
        again = await run(bombed, "true")
        expect("limit of processes" in again.stderr or again.exit_code == 0, f"it says {again.stderr!r}")


async def busy_code_gets_no_more_than_its_share_of_a_processor(subject: Subject) -> None:
    """By the node's count of processor time, where the driver reports `cpu`."""
    async with subject.open() as driver, _limited(subject, driver, cpu=250) as sandbox:
        if sandbox is None:
            return
        used, begun = _processor_seconds(subject, sandbox.sandbox_id), time.monotonic()
        await run_cell(sandbox, SPIN)
        lasted = time.monotonic() - begun
        share = (_processor_seconds(subject, sandbox.sandbox_id) - used) / lasted
        expect(lasted >= 2, f"it was busy for {lasted:.1f} s only")
        expect(share < 0.5, f"it had {share:.2f} of a processor, not 0.25")


def _processor_seconds(subject: Subject, sandbox_id: str) -> float:
    """Return what a sandbox's processes used, with those that they have reaped: fields of proc(5)."""
    ticks = 0
    for pid in subject.boundary.processes(sandbox_id):
        with suppress(FileNotFoundError, ProcessLookupError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def the_workspace_holds_no_more_than_its_limit(subject: Subject) -> None:
    """Where the driver reports `disk`."""
    async with subject.open() as driver, _limited(subject, driver, disk=16 * MEBIBYTE) as sandbox:
        if sandbox is not None:
            done = await run(sandbox, "head -c 33000000 /dev/zero > large; du -sb --apparent-size . | cut -f1")
            expect(8 * MEBIBYTE < int(done.stdout) <= 17 * MEBIBYTE, f"it holds {done.stdout}")
            expect("space" in done.stderr or "quota" in done.stderr, f"it says {done.stderr!r}")
