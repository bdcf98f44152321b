"""Forks and rewinds of a warmed kernel (numpy, pandas, an array of 500 MB), beside a bare program that forks.

`python -m benchmarks.forks [COUNT ...]` (1 8 20 100) prints for each count when the forks have answered, and how much
memory and page tables each added (median), in turns with a program of Python alone. Then a rewind with its first cell,
and what it replaces: a new sandbox that is warmed up.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.figures import Figure, box_of
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync, KernelAsync

COUNTS: Final = (1, 8, 20, 100)
ROUNDS: Final = 5
WARM_UP: Final = "import numpy as np, pandas as pd\nbig = np.ones(62_500_000)\n'ready'"
ANSWER: Final = "int(big[{index}] + {index})"
ADDED: Final = """
rollup = dict(line.split()[:2] for line in open('/proc/self/smaps_rollup').read().splitlines()[1:])
tables = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmPTE'))
print(int(rollup['Private_Dirty:']) + int(rollup['Private_Clean:']), tables, end='')
"""
BARE: Final = """
import os, sys, time
import numpy as np
big = np.ones(62_500_000)
count = int(sys.argv[1])
began = time.perf_counter()
ends = []
for index in range(count):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, str(int(big[index] + index)).encode())
        time.sleep(60)
    os.close(writer)
    ends.append(reader)
assert [int(os.read(end, 16)) for end in ends] == list(range(1, count + 1))
print(time.perf_counter() - began, flush=True)
os.killpg(0, 9)
"""


@dataclass(frozen=True)
class Round:
    """Seconds from the request to each fork's answer, in order, and KiB of memory and page tables of one of them."""

    answers: Sequence[float]
    memory: int
    tables: int


async def fork_once(box: BaseSandboxAsync, count: int) -> Round:
    """Fork, take the answer of each, and end them.

    Raises:
        RuntimeError: There are fewer, or an answer is wrong.
    """
    began = time.perf_counter()
    forks = await box.kernels.fork(count)

    async def answer(index: int, kernel: KernelAsync) -> float:
        result = await kernel.run(ANSWER.format(index=index))
        if result.text.strip() != str(index + 1):
            raise RuntimeError(f"a fork answered {result!r}")
        return time.perf_counter() - began

    answers = await asyncio.gather(*(answer(index, kernel) for index, kernel in enumerate(forks)))
    if len(answers) != count:
        raise RuntimeError(f"{len(answers)} of {count} forks were made: {forks.error}")
    memory, tables = (await forks[0].run(ADDED)).text.split()
    for kernel in forks:
        await kernel.delete()
    return Round(sorted(answers), int(memory), int(tables))


def bare(count: int) -> float:
    """Return the seconds in which a bare program's forks have all answered."""
    program = subprocess.Popen(
        [sys.executable, "-c", BARE, str(count)], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    return float(program.communicate()[0])


async def forks(box: BaseSandboxAsync, count: int) -> list[Figure]:
    """Measure so many forks in turns with the bare program."""
    rounds: list[Round] = []
    alone: list[float] = []
    for _ in range(ROUNDS):
        rounds.append(await fork_once(box, count))
        alone.append(await asyncio.to_thread(bare, count))
    last = [one.answers[-1] for one in rounds]
    middle = [statistics.median(one.answers) for one in rounds]
    added = f"{statistics.median(one.memory for one in rounds) / 1024:.1f} MiB"
    tables = f"{statistics.median(one.tables for one in rounds) / 1024:.2f} MiB"
    return [
        Figure(f"{count} forks: all have answered", _milliseconds(last), f"bare {_milliseconds(alone)}"),
        Figure(f"{count} forks: an answer, p50", _milliseconds(middle)),
        Figure(f"{count} forks: each added after a cell", f"{added}, page tables {tables}"),
    ]


async def rewinds(box: BaseSandboxAsync) -> list[Figure]:
    """Measure rewinds, with and without a cell after each."""
    kernel = await box.kernels.get("default")
    mark = await kernel.mark()
    seconds: list[tuple[float, float]] = []
    for _ in range(20):
        began = time.perf_counter()
        await kernel.rewind(mark)
        rewound = time.perf_counter() - began
        await kernel.run("1+1")
        seconds.append((rewound, time.perf_counter() - began))
    alone, answered = zip(*seconds, strict=True)
    return [
        Figure("rewind to a mark", _milliseconds(alone), "20 ms"),
        Figure("rewind to a mark, and a cell", _milliseconds(answered)),
    ]


async def measure(mesh: RunningMesh, counts: Sequence[int]) -> list[Figure]:
    """Measure everything on a mesh."""
    cold: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        async with box_of(mesh) as fresh:
            await fresh.run_ipython_cell(WARM_UP)
            cold.append(time.perf_counter() - began)
    found: list[Figure] = []
    async with box_of(mesh) as box:
        await box.run_ipython_cell(WARM_UP)
        for count in counts:
            found += await forks(box, count)
        found += await rewinds(box)
    return [*found, Figure("a new sandbox, warmed up", _milliseconds(cold))]


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.1f} ms"


async def _main(counts: Sequence[int], *, as_markdown: bool) -> None:
    async with running_mesh() as mesh:
        before = os.getloadavg()[0]
        found = await measure(mesh, counts)
    title = f"Forks of a kernel with 500 MB, medians of {ROUNDS}; {machine()}, {before:.1f} when they began"
    show(found, title, as_markdown=as_markdown)


if __name__ == "__main__":
    parser = arguments("benchmarks.forks", __doc__)
    parser.add_argument("counts", nargs="*", type=int, default=COUNTS)
    options = parser.parse_args()
    asyncio.run(_main(options.counts, as_markdown=options.markdown))
