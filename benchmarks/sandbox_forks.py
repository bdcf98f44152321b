"""Forks of a sandbox with its warmed kernel (numpy, pandas, an array of 500 MB), beside a bare program that forks.

`python -m benchmarks.sandbox_forks [COUNT ...]` (1 8 20 100) prints for each count when the forks were there and when
all had answered, how long each took after that (median), and what each kernel added, in turns with a program of Python
alone. Results and independence are checked. Then what it replaces: a new sandbox that is warmed up.
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
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync

COUNTS: Final = (1, 8, 20, 100)
ROUNDS: Final = 3
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


async def measure(mesh: RunningMesh, counts: Sequence[int]) -> list[Figure]:
    """Measure everything on a mesh."""
    found: list[Figure] = []
    async with box_of(mesh) as box:
        began = time.perf_counter()
        await box.run_ipython_cell(WARM_UP)
        warm = time.perf_counter() - began
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
    return [*found, Figure("the warm-up alone, in a sandbox that is there", _milliseconds([warm]))]


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
