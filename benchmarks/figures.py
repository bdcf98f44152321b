"""What is measured, one small function a figure."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.containers import group_bytes, processes_of
from benchmarks.meshes import RunningMesh, proportional_bytes
from benchmarks.yardstick import empty_calls
from sandmesh import BaseSandbox, BaseSandboxAsync, Output

OUTPUT_BYTES = 256 * 1024 * 1024
TASKS = 16
PAUSE_SECONDS = 0.5
"""In which a driver prepares sandboxes ahead, where it does."""
SETTLE_SECONDS = 8.0
"""In which agents that nobody calls have warmed up."""
TURN_SECONDS = 1.0
"""How long one of two that are measured in turns has the machine."""


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    what: str
    measured: str
    aim: str = ""


def spread(seconds: Sequence[float]) -> str:
    """Return the median and the 95th percentile in milliseconds."""
    ordered = sorted(seconds)
    return f"p50 {statistics.median(ordered) * 1e3:.2f} ms, p95 {ordered[int(len(ordered) * 0.95)] * 1e3:.2f} ms"


def aim(mesh: RunningMesh, bubblewrap: str, docker: str) -> str:
    """Return the aim for the driver of a mesh."""
    return docker if mesh.in_docker else bubblewrap


async def timed(work: Awaitable[object]) -> float:
    """Return the seconds that something takes."""
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


def box_of(mesh: RunningMesh) -> BaseSandboxAsync:
    """Return a sandbox of a mesh, not started."""
    return BaseSandboxAsync(base_url=mesh.address)


async def first_result(box: BaseSandboxAsync) -> None:
    """Start a box and have it answer."""
    await box.start()
    result = await box.run_ipython_cell("1+1")
    if result.text.strip() != "2":
        raise RuntimeError(f"the sandbox answered {result!r}")


async def create_and_release(mesh: RunningMesh, count: int, before: Callable[[], Awaitable[None]]) -> list[Figure]:
    """Measure sandboxes one after another: to the first result, and the release."""
    started: list[float] = []
    released: list[float] = []
    await before()
    async with box_of(mesh):  # the connection and the first sandbox's caches are not what is measured
        for _ in range(count):
            await before()
            box = box_of(mesh)
            started.append(await timed(first_result(box)))
            released.append(await timed(box.close()))
    return [Figure("", spread(started)), Figure("", spread(released))]


async def cold(mesh: RunningMesh) -> list[Figure]:
    """Measure sandboxes that are created on request, one after another and with pauses."""

    async def nothing() -> None:
        return

    made, released = await create_and_release(mesh, 20, nothing)
    apart, _ = await create_and_release(mesh, 20, partial(asyncio.sleep, PAUSE_SECONDS))
    return [
        Figure("cold create -> first Python result", made.measured, aim(mesh, "30 ms", "450 ms")),
        Figure(f"  with {PAUSE_SECONDS:g} s before each", apart.measured, aim(mesh, "15 ms", "")),
        Figure("  a bare fork into seven namespaces", await _bare_fork()),
        Figure("release returns", released.measured, "10 ms"),
    ]


async def _bare_fork() -> str:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.forking", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, failed = await program.communicate()
    return f"p50 {float(output) * 1e3:.2f} ms" if program.returncode == 0 else failed.decode().strip()


async def calls(mesh: RunningMesh) -> list[Figure]:
    """Measure one caller's calls, one after another, in turns with the machine's yardstick."""
    async with box_of(mesh) as box, empty_calls() as empty:
        cells: list[float] = []
        nothing: list[float] = []
        for _ in range(11):
            cells += [await timed(box.run_ipython_cell("1+1")) for _ in range(50)]
            nothing += [await timed(empty()) for _ in range(50)]
        commands = [await timed(box.run_shell_command("true")) for _ in range(100)]
    cells, nothing = cells[50:], nothing[50:]  # the first are slower
    times = statistics.median(cells) / statistics.median(nothing)
    return [
        Figure('run_ipython_cell("1+1")', spread(cells), aim(mesh, "0.8 ms", "1.5 ms")),
        Figure("  an empty gRPC call, in turns with it", spread(nothing)),
        Figure("  the one as a multiple of the other", f"{times:.2f}"),
        Figure('run_shell_command("true")', spread(commands)),
    ]


async def sync_calls(mesh: RunningMesh) -> list[Figure]:
    """Measure the same through the sync class."""

    def measure() -> list[float]:
        seconds: list[float] = []
        with BaseSandbox(base_url=mesh.address) as box:
            for _ in range(550):
                started = time.perf_counter()
                box.run_ipython_cell("1+1")
                seconds.append(time.perf_counter() - started)
        return seconds[50:]

    return [Figure("the same, sync", spread(await asyncio.to_thread(measure)))]


async def throughput(mesh: RunningMesh) -> list[Figure]:
    """Measure calls a second: 16 tasks, each with a sandbox of its own, one client process."""
    cells: list[float] = []
    nothing: list[float] = []
    async with AsyncExitStack() as stack:
        boxes = [await stack.enter_async_context(box_of(mesh)) for _ in range(TASKS)]
        empty = await stack.enter_async_context(empty_calls())
        await asyncio.gather(*(box.run_ipython_cell("1+1") for box in boxes), empty())
        for _ in range(5):
            cells.append(await _rate([partial(box.run_ipython_cell, "1+1") for box in boxes]))
            nothing.append(await _rate([empty] * TASKS))
    what = f"calls a second: {TASKS} tasks, {TASKS} sandboxes, one client"
    of = statistics.median(cells) / statistics.median(nothing)
    return [
        Figure(what, f"{statistics.median(cells):,.0f}, at most {max(cells):,.0f}", "3,000"),
        Figure(f"  empty gRPC calls of {TASKS} tasks, in turns", f"{statistics.median(nothing):,.0f}"),
        Figure("  the one as a share of the other", f"{of:.2f}"),
    ]


async def _rate(calls: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """Return how many calls a second tasks do that each have one of these."""
    started = time.perf_counter()
    done = await asyncio.gather(*(_call_until(call, started + TURN_SECONDS) for call in calls))
    return sum(done) / (time.perf_counter() - started)


async def _call_until(call: Callable[[], Awaitable[object]], end: float) -> int:
    done = 0
    while time.perf_counter() < end:
        await call()
        done += 1
    return done


async def neighbour(mesh: RunningMesh) -> list[Figure]:
    """Measure how late a sandbox answers while another has six long calls."""
    async with box_of(mesh) as busy, box_of(mesh) as other:
        await other.run_ipython_cell("1+1")
        alone = [await timed(other.run_ipython_cell("1+1")) for _ in range(100)]
        long = [asyncio.create_task(busy.run_shell_command("sleep 2")) for _ in range(6)]
        beside = [await timed(other.run_ipython_cell("1+1")) for _ in range(100)]
        await asyncio.gather(*long)
    late = (statistics.median(beside) - statistics.median(alone)) * 1e3
    return [Figure("a call on B while A has six long calls", f"{late:+.2f} ms late (p50)", "2 ms")]


async def output(mesh: RunningMesh) -> list[Figure]:
    """Measure one command's large output."""
    async with box_of(mesh) as box:
        got = 0
        started = time.perf_counter()
        async for event in box.stream("run_shell_command", command=f"head -c {OUTPUT_BYTES} /dev/zero"):
            got += len(event.data) if isinstance(event, Output) else 0
        seconds = time.perf_counter() - started
    if got != OUTPUT_BYTES:
        raise RuntimeError(f"{got} bytes of {OUTPUT_BYTES} came")
    return [Figure("256 MB of standard output", f"{got / seconds / 1e6:,.0f} MB/s", "300 MB/s")]


async def memory(mesh: RunningMesh) -> list[Figure]:
    """Measure what each of five idle sandboxes adds to all processes of the mesh; root alone can read it."""
    what, most, count = "memory that an idle sandbox adds (PSS)", "20 MB", 5
    async with AsyncExitStack() as stack:
        await _use(await stack.enter_async_context(box_of(mesh)))
        try:
            before = proportional_bytes(await processes_of(mesh))
            boxes = [await stack.enter_async_context(box_of(mesh)) for _ in range(count)]
            await asyncio.sleep(SETTLE_SECONDS)
            idle = proportional_bytes(await processes_of(mesh)) - before
            for box in boxes:
                await _use(box)
            used = proportional_bytes(await processes_of(mesh)) - before
        except PermissionError:
            return [Figure(what, "needs root", most)]
        groups = await group_bytes(mesh)
    rows = [Figure("  by its control group", f"{max(groups) / 1e6:.1f} MB", "60 MB")] if groups else []
    return [
        Figure(what, f"{idle / count / 1e6:.1f} MB", aim(mesh, most, "40 MB")),
        Figure("  once it was called, and has all its tools", f"{used / count / 1e6:.1f} MB", aim(mesh, most, "")),
        *rows,
    ]


async def _use(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell("1+1")
    await box.run_shell_command("true")
    # Its agent has imported all tools then, which it does by itself in a quiet moment after the first call.
    await box.list_tools()


async def at_once(mesh: RunningMesh) -> list[Figure]:
    """Measure many sandboxes that are created at one moment."""
    return [await _at_once(mesh, 20, aim(mesh, "", "6 s")), await _at_once(mesh, 50, aim(mesh, "1 s", ""))]


async def _at_once(mesh: RunningMesh, count: int, aim: str) -> Figure:
    boxes = [box_of(mesh) for _ in range(count)]
    try:
        seconds = await timed(asyncio.gather(*(first_result(box) for box in boxes)))
    finally:
        await asyncio.gather(*(box.close() for box in boxes))
    return Figure(f"{count} created at once, all answered", f"{seconds:.2f} s", aim)


def imports() -> list[Figure]:
    """Measure what importing the SDK adds to an interpreter's start."""

    def run(code: str) -> float:
        seconds: list[float] = []
        for _ in range(10):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds) * 1e3

    empty = run("pass")
    return [
        Figure("import sandmesh", f"{run('import sandmesh') - empty:.0f} ms"),
        Figure("from sandmesh import BaseSandbox", f"{run('from sandmesh import BaseSandbox') - empty:.0f} ms"),
    ]
