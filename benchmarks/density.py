"""Many sandboxes at once on one machine: what each further one costs as they accumulate, and how they end.

`python -m benchmarks.density [COUNT]` starts a mesh, makes sandboxes up to COUNT, 8 at a time, and prints a line for
each step: creates a second, a call in one of them, memory, what the mesh's processes use while nothing happens; at the
end how long they take to end with the mesh.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Figure, box_of
from benchmarks.meshes import RunningMesh, processes_below, running_mesh
from sandmesh import BaseSandboxAsync

COUNT = 1_000
STEPS = 10
AT_ONCE = 8
CALLS = 50
IDLE_SECONDS = 10.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Step:
    """What was measured when there were `alive` sandboxes."""

    alive: int
    creates_a_second: float
    call_ms: float
    idle_seconds_a_minute: float
    memory_mb: float
    """What a sandbox of this step added to the memory in use."""


async def density(count: int, console: Console) -> tuple[list[Step], float]:
    """Return the steps up to `count` sandboxes, and the seconds in which all ended."""
    steps: list[Step] = []
    boxes: list[BaseSandboxAsync] = []
    async with running_mesh(environment={"SANDMESH_MAX_SANDBOXES": str(count)}) as mesh:
        for _ in range(STEPS):
            with console.status(f"{len(boxes)} sandboxes"):
                steps.append(await _step(mesh, boxes, count // STEPS))
        ended = time.perf_counter()
    return steps, time.perf_counter() - ended


async def _step(mesh: RunningMesh, boxes: list[BaseSandboxAsync], more: int) -> Step:
    used = _used_mb()
    added = [box_of(mesh) for _ in range(more)]
    left = iter(added)

    async def make() -> None:
        for box in left:
            await box.start()
            await box.run_ipython_cell("1+1")

    started = time.perf_counter()
    await asyncio.gather(*(make() for _ in range(AT_ONCE)))
    seconds = time.perf_counter() - started
    boxes += added
    call = await _call_ms(boxes[-1])
    return Step(len(boxes), more / seconds, call, await _idle(mesh), (_used_mb() - used) / more)


async def _call_ms(box: BaseSandboxAsync) -> float:
    taken: list[float] = []
    for _ in range(CALLS):
        started = time.perf_counter()
        await box.run_ipython_cell("1+1")
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e3


async def _idle(mesh: RunningMesh) -> float:
    """Return the processor seconds a minute of the mesh with all its sandboxes, while nothing is called."""
    pids = {mesh.pid, *processes_below(mesh.pid)}
    before = sum(map(_cpu_seconds, pids))
    await asyncio.sleep(IDLE_SECONDS)
    return (sum(map(_cpu_seconds, pids)) - before) * 60 / IDLE_SECONDS


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def _used_mb() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    values = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return (values["MemTotal"] - values["MemAvailable"]) / 1024


def figures(steps: list[Step], ended: float) -> list[Figure]:
    """Return the table's lines."""
    lines = [
        Figure(
            f"{one.alive} sandboxes",
            f"{one.creates_a_second:.1f} creates/s, call {one.call_ms:.2f} ms, "
            f"idle {one.idle_seconds_a_minute:.2f} s/min, {one.memory_mb:.1f} MB each",
        )
        for one in steps
    ]
    share = steps[-1].creates_a_second / steps[0].creates_a_second
    return [
        *lines,
        Figure("rate of creates at the end, as a share of the first", f"{share:.2f}", ">= 0.9"),
        Figure("all end, with the mesh", f"{ended:.1f} s", "<= 5 s"),
    ]


def main() -> None:
    """Measure and print."""
    from benchmarks.__main__ import machine, markdown, table  # noqa: PLC0415 - that one imports the others

    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    title = machine()
    found = figures(*asyncio.run(density(count, Console(stderr=True))))
    print(markdown(found, title)) if "--markdown" in sys.argv else Console().print(table(found, title))


if __name__ == "__main__":
    main()
