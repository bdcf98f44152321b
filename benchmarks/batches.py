"""How much a batch of creates slows the creates of others on one machine.

`python -m benchmarks.batches [--count 500] [--starts 2]` starts a mesh and measures creates one after another, alone,
then while a batch of COUNT is created with all of them requested at once, then the same without the batch's priority.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from rich.console import Console

from benchmarks.figures import Figure
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync, MeshAsync

ALONE = 40
"""How many creates are measured without a batch."""
Priority = Literal["interactive", "batch"]


async def batches(count: int, starts: int, console: Console) -> list[Figure]:
    """Return the figures of creates alone and beside batches."""
    figures: list[Figure] = []
    settings = {"SANDMESH_MAX_SANDBOXES": str(count + 100), "SANDMESH_BATCH_STARTS": str(starts)}
    async with running_mesh(environment=settings) as mesh, MeshAsync(mesh.address) as client:
        await _create_once(mesh)
        alone = sorted([await _create_once(mesh) for _ in range(ALONE)])
        figures.append(Figure("a create, alone (p50, p99)", _quantiles(alone)))
        for priority in ("batch", "interactive"):
            with console.status(f"{count} creates at once, priority {priority}"):
                figures += await _beside(mesh, client, count, priority, alone)
    return figures


async def _beside(
    mesh: RunningMesh, client: MeshAsync, count: int, priority: Priority, alone: Sequence[float]
) -> list[Figure]:
    began = time.perf_counter()
    batch = asyncio.create_task(_batch(client, count, priority))
    beside: list[float] = []
    while not batch.done():
        beside.append(await _create_once(mesh))
    boxes, seconds = await batch
    for start in range(0, count, 64):
        await asyncio.gather(*(box.close() for box in boxes[start : start + 64]))
    while (await client.capacity()).used:  # noqa: ASYNC110 - nothing reports the last deletion
        await asyncio.sleep(0.1)
    beside.sort()
    factor = statistics.median(beside) / statistics.median(alone)
    words = f"a batch of {count} at once, priority {priority}"
    return [
        Figure(words, f"{count / (seconds - began):.1f} creates a second"),
        Figure("  a create beside it (p50, p99)", f"{_quantiles(beside)}, {len(beside)} of them"),
        Figure("  as many times the p50 alone", f"{factor:.2f}", "2 at most" if priority == "batch" else ""),
    ]


async def _batch(client: MeshAsync, count: int, priority: Priority) -> tuple[list[BaseSandboxAsync], float]:
    items = [item async for item in client.create_many(count, concurrency=count, priority=priority, on_error="raise")]
    return [item.sandbox for item in items if item.sandbox is not None], time.perf_counter()


async def _create_once(mesh: RunningMesh) -> float:
    box, began = BaseSandboxAsync(base_url=mesh.address), time.perf_counter()
    await box.start()
    seconds = time.perf_counter() - began
    await box.close()
    return seconds


def _quantiles(times: Sequence[float]) -> str:
    p50, p99 = statistics.median(times), times[max(0, round(0.99 * len(times)) - 1)]
    return f"{p50 * 1000:.0f} ms, {p99 * 1000:.0f} ms"


def main() -> None:
    """Measure, and print the table."""
    parser = arguments("benchmarks.batches", __doc__)
    parser.add_argument("--count", type=int, default=500, help="how many sandboxes a batch has")
    parser.add_argument("--starts", type=int, default=2, help="SANDMESH_BATCH_STARTS of the mesh")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        found = asyncio.run(batches(options.count, options.starts, Console(stderr=True)))
        show(found, f"Batches, {options.starts} starts at once, {machine()}", as_markdown=options.markdown)


if __name__ == "__main__":
    main()
