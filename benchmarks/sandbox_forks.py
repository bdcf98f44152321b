"""Forks of a sandbox with its warmed kernel (numpy, pandas, an array of 500 MB), beside a bare program that forks.

`python -m benchmarks.sandbox_forks [COUNT ...]` (1 8 20 100) prints for each count when the forks were there and when
all had answered, how long each took after that (median), and what each kernel added, in turns with a program of Python
alone. Then marks of a sandbox (files and kernel) and rewinds to them, each with the first answer after it, and what all
of it replaces: a new sandbox that is warmed up. Results and independence are checked.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.figures import Figure, box_of
from benchmarks.forks import ADDED, WARM_UP, bare
from benchmarks.meshes import RunningMesh, processes_below, proportional_bytes, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync, SandboxMark

COUNTS: Final = (1, 8, 20, 100)
ROUNDS: Final = 3
REWINDS: Final = 10
MARKS: Final = 5
ANSWER: Final = "big[{index}] += {index}; int(big[{index}]), int(big[:200].sum())"


@dataclass(frozen=True)
class Round:
    """Seconds until all forks were there, until the last answer, an answer's median, and KiB that a kernel added."""

    forked: float
    answered: float
    answer: float
    added: int


async def fork_once(box: BaseSandboxAsync, count: int) -> Round:
    """Fork, take the answer of each, and release them.

    Raises:
        RuntimeError: There are fewer, an answer is wrong, or a fork saw what another one wrote.
    """
    began = time.perf_counter()
    forks = await box.fork(count, kernels=True)
    forked = time.perf_counter() - began

    async def answer(index: int, fork: BaseSandboxAsync) -> float:
        asked = time.perf_counter()
        result = await fork.run_ipython_cell(ANSWER.format(index=index))
        if result.text.strip() != str((1 + index, 200 + index)):
            raise RuntimeError(f"fork {index} answered {result!r}")
        return time.perf_counter() - asked

    try:
        answers = await asyncio.gather(*(answer(index, fork) for index, fork in enumerate(forks)))
        answered = time.perf_counter() - began
        if len(answers) != count:
            raise RuntimeError(f"{len(answers)} of {count} forks were made: {forks.error}")
        added = (await forks[0].run_ipython_cell(ADDED)).text.split()[0]
    finally:
        await asyncio.gather(*(fork.close() for fork in forks))
    return Round(forked, answered, statistics.median(answers), int(added))


async def marks(mesh: RunningMesh, box: BaseSandboxAsync) -> list[Figure]:
    """Measure marks, and rewinds to one of them after a change of file and array.

    Raises:
        RuntimeError: A rewind brought back something else.
    """
    await box.fs.write("state", "first")
    before = proportional_bytes(processes_below(mesh.pid))
    held = [(await _timed_mark(box), await _seconds_of_answer(box, "int(big[:200].sum())")) for _ in range(MARKS)]
    added = (proportional_bytes(processes_below(mesh.pid)) - before) / MARKS
    mark = held[0][0][1]
    rewound: list[float] = []
    answered: list[float] = []
    for number in range(REWINDS):
        await box.fs.write("state", f"changed {number}")
        await box.run_ipython_cell(f"big[:100] = {number + 2}")
        began = time.perf_counter()
        await box.rewind(mark)
        rewound.append(time.perf_counter() - began)
        result = await box.run_ipython_cell("open('state').read(), int(big[:200].sum())")
        answered.append(time.perf_counter() - began)
        if result.text.strip() != "('first', 200)":
            raise RuntimeError(f"a rewind brought back {result!r}")
    for (_, one), _ in held:
        await box.drop(one)
    return [
        Figure("a mark", _milliseconds([seconds for (seconds, _), _ in held])),
        Figure("a mark, and the next answer", _milliseconds([mark + answer for (mark, _), answer in held])),
        Figure("a mark added", f"{added / (1 << 20):.1f} MiB"),
        Figure("a rewind", _milliseconds(rewound), "20 ms"),
        Figure("a rewind, and the next answer", _milliseconds(answered)),
    ]


async def _timed_mark(box: BaseSandboxAsync) -> tuple[float, SandboxMark]:
    began = time.perf_counter()
    mark = await box.mark(kernels=True)
    return time.perf_counter() - began, mark


async def _seconds_of_answer(box: BaseSandboxAsync, code: str) -> float:
    began = time.perf_counter()
    await box.run_ipython_cell(code)
    return time.perf_counter() - began


async def measure(mesh: RunningMesh, counts: Sequence[int]) -> list[Figure]:
    """Measure everything on a mesh."""
    found: list[Figure] = []
    cold: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        async with box_of(mesh) as fresh:
            await fresh.run_ipython_cell(WARM_UP)
            cold.append(time.perf_counter() - began)
    async with box_of(mesh) as box:
        await box.run_ipython_cell(WARM_UP)
        for count in counts:
            rounds: list[Round] = []
            alone: list[float] = []
            for _ in range(ROUNDS):
                rounds.append(await fork_once(box, count))
                alone.append(await asyncio.to_thread(bare, count))
            beside = f"bare {_milliseconds(alone)}"
            found += [
                Figure(f"{count} sandboxes: forked", _milliseconds([one.forked for one in rounds])),
                Figure(
                    f"{count} sandboxes: all have answered", _milliseconds([one.answered for one in rounds]), beside
                ),
                Figure(f"{count} sandboxes: an answer, p50", _milliseconds([one.answer for one in rounds])),
                Figure(
                    f"{count} sandboxes: a kernel added",
                    f"{statistics.median(one.added for one in rounds) / 1024:.1f} MiB",
                ),
            ]
        found += await marks(mesh, box)
    return [*found, Figure("a new sandbox, warmed up", _milliseconds(cold))]


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.1f} ms"


async def _main(counts: Sequence[int], *, as_markdown: bool) -> None:
    async with running_mesh() as mesh:
        found = await measure(mesh, counts)
    show(found, f"Forks of a sandbox with 500 MB, medians of {ROUNDS}; {machine()}", as_markdown=as_markdown)


if __name__ == "__main__":
    parser = arguments("benchmarks.sandbox_forks", __doc__)
    parser.add_argument("counts", nargs="*", type=int, default=COUNTS)
    options = parser.parse_args()
    sys.exit(asyncio.run(_main(options.counts, as_markdown=options.markdown)))
