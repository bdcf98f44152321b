"""Creates of sandboxes that wait in a pool."""

from __future__ import annotations

import asyncio
import mmap
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Final

from benchmarks.figures import Figure, aim, box_of, spread, timed
from benchmarks.meshes import RunningMesh, pool_is_full
from benchmarks.yardstick import empty_calls
from sandmesh import BaseSandboxAsync

POOL: Final = 8
ROUNDS: Final = 15
PAGES: Final = 2_000


async def warm(mesh: RunningMesh) -> list[Figure]:
    """Measure sandboxes of a pool: one after a pause, then all but one of the others right after each other.

    Processes that have slept find little of their memory in the processors' caches, and on some virtual machines little
    of it mapped by the host. So a cell of another sandbox and an empty gRPC call are measured under the same condition.
    """
    # The newest one still imports: in a container all but its first tools, later and by and by.
    pause = 4.0 if mesh.in_docker else 0.5
    slept, row = Warm(), Warm()
    async with box_of(mesh) as other, empty_calls() as empty:
        await other.run_ipython_cell("1+1")
        await empty()
        for _ in range(ROUNDS):
            await pool_is_full(mesh, "base", POOL)
            await asyncio.sleep(pause)
            boxes = [box_of(mesh) for _ in range(POOL - 1)]
            await slept.take(boxes[0])
            for box in boxes[1:]:
                await row.take(box)
                await row.compare(other, empty, 0.0)
            await asyncio.gather(*(box.close() for box in boxes))
            await pool_is_full(mesh, "base", POOL)
            await slept.compare(other, empty, pause)
    return [
        Figure("warm create -> first Python result, one after another", spread(row.both)),
        *row.parts(),
        Figure("  the first in empty calls", row.in_empty_calls(), aim(mesh, "9.1 times (3 ms by 0.33)", "")),
        Figure("warm create -> first Python result, after a pause", spread(slept.both), aim(mesh, "5 ms", "8 ms")),
        *slept.parts(),
        Figure("  the first in empty calls", slept.in_empty_calls()),
        Figure("  memory that was left alone as long, a page", _page_seconds(pause)),
    ]


class Warm:
    """What was measured under one condition."""

    def __init__(self) -> None:
        self.created, self.cell, self.other, self.nothing = (list[float]() for _ in range(4))

    @property
    def both(self) -> list[float]:
        """The seconds to the first result of each sandbox."""
        return [first + second for first, second in zip(self.created, self.cell, strict=True)]

    async def take(self, box: BaseSandboxAsync) -> None:
        """Measure a sandbox of the pool."""
        self.created.append(await timed(box.start()))
        self.cell.append(await timed(box.run_ipython_cell("1+1")))

    async def compare(self, other: BaseSandboxAsync, empty: Callable[[], Awaitable[object]], pause: float) -> None:
        """Measure a cell of another sandbox and an empty call, each after a pause."""
        await asyncio.sleep(pause)
        self.other.append(await timed(other.run_ipython_cell("1+1")))
        await asyncio.sleep(pause)
        self.nothing.append(await timed(empty()))

    def in_empty_calls(self) -> str:
        """Return the time to the first result as a multiple of an empty call's."""
        return f"{statistics.median(self.both) / statistics.median(self.nothing):.1f} times"

    def parts(self) -> list[Figure]:
        """Return the lines below the sum."""
        return [
            Figure("  the create", spread(self.created)),
            Figure("  the first cell", spread(self.cell)),
            Figure("  in turns with it, a cell of another sandbox", spread(self.other)),
            Figure("  and an empty gRPC call", spread(self.nothing)),
        ]


def _page_seconds(pause: float) -> str:
    """Return what reading a page takes that nobody read for so long, and what it takes right after."""
    late: list[float] = []
    soon: list[float] = []
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as block:
        block.madvise(mmap.MADV_NOHUGEPAGE)
        for offset in range(0, len(block), mmap.PAGESIZE):
            block[offset] = 1
        for _ in range(5):
            time.sleep(pause)
            late.append(_read_pages(block))
            soon.append(_read_pages(block))
    return f"{statistics.median(late) * 1e6:.2f} us, read again {statistics.median(soon) * 1e6:.2f}"


def _read_pages(block: mmap.mmap) -> float:
    offsets = range(0, len(block), mmap.PAGESIZE)
    started = time.perf_counter()
    for offset in offsets:
        block[offset]
    return (time.perf_counter() - started) / len(offsets)
