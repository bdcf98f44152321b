"""A mesh used for long with nothing broken: what its services hold, sampled, and whether that stays flat."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean

from redis.exceptions import RedisError

from tests.faults.leftovers import wait_until_clean
from tests.faults.runtimes import Bubblewrap, Runtime
from tests.faults.workload import Workload
from tests.faults.world import Shape, World, open_world

MIB = 1 << 20
REMEMBERED_SECONDS = 60
"""How long this mesh remembers deleted sandboxes: what it keeps of them is flat after so long."""


@dataclass(frozen=True)
class Bounds:
    """How much more the last quarter of the samples may hold than the second one, on average."""

    memory_part: float = 0.05
    memory_mib: float = 4.0
    descriptors: float = 4.0
    keys_part: float = 0.15
    keys: float = 40.0
    files_part: float = 0.15
    files: float = 40.0


@dataclass
class Sample:
    """What every process held at one time: memory in MiB (PSS) and descriptors; the store's keys; files by folder."""

    seconds: float
    cycles: int
    memory: dict[str, float]
    descriptors: dict[str, int]
    keys: dict[str, int]
    files: dict[str, int] = field(default_factory=dict[str, int])


@dataclass
class Soaked:
    """What a soak showed."""

    seconds: float = 0.0
    cycles: int = 0
    errors: dict[str, int] = field(default_factory=dict[str, int])
    wrong_output: list[str] = field(default_factory=list[str])
    samples: list[Sample] = field(default_factory=list[Sample])
    left: list[str] = field(default_factory=list[str])

    def as_dict(self) -> dict[str, object]:
        """Return it as it is stored."""
        return asdict(self)


@dataclass(frozen=True)
class Trend:
    """One series: its average in the second and in the last quarter, and whether that counts as flat."""

    what: str
    name: str
    second: float
    last: float
    flat: bool


@dataclass(frozen=True)
class Course:
    """How a soak goes."""

    cycles: int
    seconds: float
    every: float
    """Seconds between samples."""
    clients: int = 4
    pace: float = 0.0
    """The most cycles a second, so that what is remembered of them for a while does not grow with a machine that has
    more time for them; 0: as many as it can.
    """
    runtime: Runtime = field(default_factory=Bubblewrap)


async def soak(folder: Path, course: Course, log: Callable[[str], None] = print) -> Soaked:
    """Run cycles until there are enough or the time is over, and sample all the while."""
    remembered = {"SANDMESH_EVENT_SECONDS": str(REMEMBERED_SECONDS)}
    async with open_world(
        folder, shape=Shape(services=1, nodes=2, runtime=course.runtime), environment=remembered
    ) as world:
        work = Workload(world.addresses, lines=200)
        await work.run(course.clients, 4 * course.clients)
        idle = len(world.runtime.inside())
        soaked, began, calm = Soaked(), time.monotonic(), asyncio.Event()
        running = asyncio.create_task(_at_pace(work, course, calm))
        while not running.done() and time.monotonic() - began < course.seconds:
            await asyncio.wait([running], timeout=course.every)
            soaked.samples.append(await sample(world, time.monotonic() - began, len(work.account.cycles)))
            log(_line(soaked.samples[-1], course.cycles))
        calm.set()
        await running
        soaked.seconds, soaked.cycles = round(time.monotonic() - began, 1), len(work.account.cycles)
        soaked.errors, soaked.wrong_output = dict(work.account.errors()), work.account.wrong
        soaked.left = await wait_until_clean(world, idle)
        return soaked


async def _at_pace(work: Workload, course: Course, calm: asyncio.Event) -> None:
    await work.run(
        course.clients, course.cycles, until=calm, pause=course.clients / course.pace if course.pace else 0.0
    )


def _line(sample: Sample, cycles: int) -> str:
    return (
        f"{sample.seconds:.0f} s: {sample.cycles} of {cycles} cycles, {sum(sample.memory.values()):.0f} MiB, "
        f"{sum(sample.descriptors.values())} descriptors, {sum(sample.keys.values())} keys"
    )


async def sample(world: World, seconds: float, cycles: int, files: dict[str, int] | None = None) -> Sample:
    """Measure what everything of a world holds now."""
    pids = {name: program.pid for name, program in world.programs.items()}
    pids |= {"store": await world.store.find_pid(), "client": os.getpid()}
    memory: dict[str, float] = {}
    descriptors: dict[str, int] = {}
    for name, pid in pids.items():
        if pid is not None:
            with suppress(OSError):
                # It may be killed meanwhile.
                memory[name], descriptors[name] = round(_memory(pid) / MIB, 1), _descriptors(pid)
    return Sample(round(seconds, 1), cycles, memory, descriptors, await _keys(world), files or {})


def _memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def _keys(world: World) -> dict[str, int]:
    counts: dict[str, int] = {}
    prefix = f"sandmesh:{{{world.settings.mesh_id}}}:"
    with suppress(RedisError, OSError):
        async with world.store.client() as client:
            async for key in client.scan_iter(match=f"{prefix}*", count=1000):
                family, _, rest = key.removeprefix(prefix).partition(":")
                # What each sandbox used is kept for longer than a soak takes: the store bounds how many.
                if not (family == "usage" and rest.startswith("sandbox:")):
                    counts[family] = counts.get(family, 0) + 1
    return counts


def trends(samples: Sequence[Sample], bounds: Bounds) -> list[Trend]:
    """Compare the last quarter with the second one, series by series."""
    found: list[Trend] = []
    for what in ("memory", "descriptors", "keys", "files"):
        tables: list[Mapping[str, float]] = [getattr(sample, what) for sample in samples]
        for name in sorted({name for table in tables for name in table}):
            # What is being started again holds nothing, which is not a figure; a family of keys is empty at times.
            absent = [0.0] if what in ("keys", "files") else []
            series = [value for table in tables for value in ([table[name]] if name in table else absent)]
            quarter = max(1, len(series) // 4)
            second, last = mean(series[quarter : 2 * quarter]), mean(series[-quarter:])
            found.append(Trend(what, name, round(second, 1), round(last, 1), _is_flat(what, second, last, bounds)))
    return found


def _is_flat(what: str, second: float, last: float, bounds: Bounds) -> bool:
    allowed = {
        "memory": max(bounds.memory_mib, bounds.memory_part * second),
        "descriptors": bounds.descriptors,
        "keys": max(bounds.keys, bounds.keys_part * second),
        "files": max(bounds.files, bounds.files_part * second),
    }
    return last - second <= allowed[what]
