"""Many sandboxes at once on one machine: what each further one costs as they accumulate, and how they end.

`python -m benchmarks.density [COUNT ...]` (0 100 500 1000) starts a mesh and measures with so many sandboxes alive: the
rate of further creates, 8 at a time, and the processor time of each; a call in one of them; the memory that each added;
what the mesh's processes use while nothing happens. At the end, how long all take to end with the mesh.

On a virtual machine whose host gives memory only when it is first written, such a write takes several times as long (12
microseconds for 4 KiB instead of 1.7, seen once): then the first sandboxes, which get what others had before, are
cheaper than the last. So as much memory as the creates of a rate will need is written right before them, whatever the
count: it goes back to the host within seconds.
"""

from __future__ import annotations

import asyncio
import mmap
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Figure, box_of
from benchmarks.meshes import RunningMesh, processes_below, running_mesh
from benchmarks.profiles import spent
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync

COUNTS = (0, 100, 500, 1_000)
MORE = 64
"""How many are created beyond each count to measure the rate; they are released again."""
AT_ONCE = 8
CALLS = 50
SETTLE_SECONDS = 5.0
IDLE_SECONDS = 60.0
"""In which everything that is done regularly is done once."""
EACH_MB = 16
"""The memory that is written beforehand for each create of a rate."""


@dataclass(frozen=True)
class Step:
    """What was measured when there were `alive` sandboxes."""

    alive: int
    creates_a_second: float
    create_cpu_ms: float
    """The processor time of what lives in the mesh afterwards, for each create."""
    call_ms: float
    idle_seconds_a_minute: float
    memory_mb: float
    """What each sandbox since the step before added to the memory in use."""


async def density(counts: Sequence[int], console: Console) -> tuple[list[Step], float]:
    """Return a step for each count of living sandboxes, and the seconds in which all ended."""
    steps: list[Step] = []
    boxes: list[BaseSandboxAsync] = []
    async with running_mesh(environment={"SANDMESH_MAX_SANDBOXES": str(counts[-1] + 2 * MORE)}) as mesh:
        # What the first sandboxes alone pay for is not what is measured.
        await _release(await _create(mesh, AT_ONCE))
        for count in counts:
            with console.status(f"{len(boxes)} to {count} sandboxes"):
                steps.append(await _step(mesh, boxes, count - len(boxes)))
        ended = time.perf_counter()
    return steps, time.perf_counter() - ended


async def _step(mesh: RunningMesh, boxes: list[BaseSandboxAsync], more: int) -> Step:
    used = _used_mb()
    boxes += await _create(mesh, more)
    await asyncio.sleep(SETTLE_SECONDS)
    memory = (_used_mb() - used) / max(more, 1)
    idle = await _idle(mesh)
    touch_memory(MORE * EACH_MB)
    cpu, started = _cpu_seconds(mesh), time.perf_counter()
    further = await _create(mesh, MORE)
    seconds, cpu = time.perf_counter() - started, _cpu_seconds(mesh) - cpu
    call = await _call_ms(further[-1])
    await _release(further)
    return Step(len(boxes), MORE / seconds, cpu / MORE * 1e3, call, idle, memory)


async def _create(mesh: RunningMesh, count: int) -> list[BaseSandboxAsync]:
    added = [box_of(mesh) for _ in range(count)]
    left = iter(added)

    async def make() -> None:
        for box in left:
            await box.start()
            await box.run_ipython_cell("1+1")

    await asyncio.gather(*(make() for _ in range(AT_ONCE)))
    return added


async def _release(boxes: list[BaseSandboxAsync]) -> None:
    await asyncio.gather(*(box.close() for box in boxes))
    # Their processes end after the release returned.
    await asyncio.sleep(SETTLE_SECONDS)


async def _call_ms(box: BaseSandboxAsync) -> float:
    taken: list[float] = []
    for _ in range(CALLS):
        started = time.perf_counter()
        await box.run_ipython_cell("1+1")
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e3


async def _idle(mesh: RunningMesh) -> float:
    """Return the processor seconds a minute of the mesh with all its sandboxes, while nothing is called."""
    before = _cpu_seconds(mesh)
    await asyncio.sleep(IDLE_SECONDS)
    return (_cpu_seconds(mesh) - before) * 60 / IDLE_SECONDS


def touch_memory(most_mb: int) -> None:
    """Write so much memory, if there is, and leave it again."""
    block = mmap.mmap(-1, min(most_mb, int(_available_mb() / 2)) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(block), mmap.PAGESIZE):
        block[at] = 1
    block.close()


def _cpu_seconds(mesh: RunningMesh) -> float:
    return sum(spent(pid).seconds for pid in (mesh.pid, *processes_below(mesh.pid)))


def _used_mb() -> float:
    values = _meminfo()
    return (values["MemTotal"] - values["MemAvailable"]) / 1024


def _available_mb() -> float:
    return _meminfo()["MemAvailable"] / 1024


def _meminfo() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}


def figures(steps: list[Step], ended: float) -> list[Figure]:
    """Return the table's lines."""
    lines = [
        Figure(
            f"{step.alive} sandboxes alive",
            f"{step.creates_a_second:.1f} creates/s, each {step.create_cpu_ms:.1f} ms of a processor, "
            f"call {step.call_ms:.2f} ms, idle {step.idle_seconds_a_minute:.2f} s/min"
            + (f", {step.memory_mb:.1f} MB each" if step.alive else ""),
        )
        for step in steps
    ]
    share = steps[-1].creates_a_second / steps[0].creates_a_second
    return [
        *lines,
        Figure("rate of creates at the end, as a share of the first", f"{share:.2f}", ">= 0.9"),
        Figure("all end, with the mesh", f"{ended:.1f} s", "<= 5 s"),
    ]


def main() -> None:
    """Measure and print."""
    parser = arguments("benchmarks.density", __doc__)
    parser.add_argument("counts", nargs="*", type=int, metavar="COUNT", help="sandboxes alive: 0 100 500 1000")
    options = parser.parse_args()
    title = machine()
    found = figures(*asyncio.run(density(sorted(options.counts) or COUNTS, Console(stderr=True))))
    show(found, title, as_markdown=options.markdown)


if __name__ == "__main__":
    main()
