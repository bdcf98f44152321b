"""Creates of sandboxes that wait in a pool."""

from __future__ import annotations

import asyncio
import mmap
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from benchmarks.figures import Figure, aim, box_of, spread, timed
from benchmarks.meshes import RunningMesh, pool_is_full
from benchmarks.yardstick import empty_calls
from sandmesh import BaseSandboxAsync

ROUNDS: Final = 20
CALLS_BEFORE: Final = 20
"""How many calls of another sandbox are made right before a warm create, in a mesh that is in use."""
PAGES: Final = 2_000


async def warm(mesh: RunningMesh) -> list[Figure]:
    """Measure sandboxes that wait in a pool, in a mesh that is in use, and after a pause; in turns, an empty gRPC call.

    Processes that have slept find little of their memory in the processors' caches, and on some virtual machines little
    of it mapped by the host.
    """
    # The newest one still imports: in a container all but its first tools, later and by and by.
    pause = 4.0 if mesh.in_docker else 0.5
    used, slept = Warm(), Warm()
    async with box_of(mesh) as other, empty_calls() as empty:
        await other.run_ipython_cell("1+1")
        await empty()
        for _ in range(ROUNDS):
            await pool_is_full(mesh, "base", 2)
            await asyncio.sleep(pause)
            for _ in range(CALLS_BEFORE):
                await other.run_ipython_cell("1+1")
                await empty()
            await used.measure(mesh, other, empty, 0.0)
            await pool_is_full(mesh, "base", 2)
            await asyncio.sleep(pause)
            await slept.measure(mesh, other, empty, pause)
    bare = _in_empty_calls(statistics.median(used.both), used.nothing)
    return [
        Figure("warm create -> first Python result, in a mesh in use", spread(used.both), aim(mesh, "3 ms", "8 ms")),
        *used.parts(),
        Figure("  the first of them, in empty calls", bare, aim(mesh, "9.1 times (3 ms where that takes 0.33)", "")),
        Figure("warm create -> first Python result, after a pause", spread(slept.both), aim(mesh, "5 ms", "8 ms")),
        *slept.parts(),
        Figure("  memory that was left alone as long, a page", _page_seconds(pause)),
    ]


class Warm:
    """What was measured of pooled sandboxes."""

    def __init__(self) -> None:
        self.created, self.cell, self.other, self.nothing = (list[float]() for _ in range(4))

    @property
    def both(self) -> list[float]:
        return [first + second for first, second in zip(self.created, self.cell, strict=True)]

    async def measure(
        self, mesh: RunningMesh, other: BaseSandboxAsync, empty: Callable[[], Awaitable[object]], pause: float
    ) -> None:
        """Take a sandbox from the pool; then measure a cell of another one and an empty call, each after a pause."""
        box = box_of(mesh)
        self.created.append(await timed(box.start()))
        self.cell.append(await timed(box.run_ipython_cell("1+1")))
        await box.close()
        await asyncio.sleep(pause)
        self.other.append(await timed(other.run_ipython_cell("1+1")))
        await asyncio.sleep(pause)
        self.nothing.append(await timed(empty()))

    def parts(self) -> list[Figure]:
        """Return the lines below the sum."""
        return [
            Figure("  the create", spread(self.created)),
            Figure("  the first cell", spread(self.cell)),
            Figure("  in turns with it, a cell of another sandbox", spread(self.other)),
            Figure("  and an empty gRPC call", spread(self.nothing)),
        ]


def _in_empty_calls(seconds: float, nothing: Sequence[float]) -> str:
    return f"{seconds / statistics.median(nothing):.1f} times"


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
