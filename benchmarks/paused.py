"""`python -m benchmarks.paused [COUNT] [--wakes WAKES] [--requests REQUESTS]`: many paused sandboxes on one machine.

COUNT (1,000) sandboxes answer a cell and are paused. Then: the memory of each before and after its pause (proportional,
without swap, and what is swapped); the processor time that their processes and the mesh's use in a minute in which
nothing happens; how long a call takes that wakes one among them, and the same call once it is awake (WAKES, 100, of
different sandboxes, each paused again). At last REQUESTS (1,000) at the same time to a paused one: all must be
answered, by one wake.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, box_of, first_result
from benchmarks.meshes import RunningMesh, processes_below, running_mesh
from benchmarks.profiles import spent
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync

COUNT, WAKES, REQUESTS = 1_000, 100, 1_000
AT_ONCE: Final = 8
SETTLE_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 60.0


async def measure(count: int, wakes: int, requests: int) -> list[Figure]:
    """Return the table's lines."""
    room = {"SANDMESH_MAX_SANDBOXES": str(count + AT_ONCE)}
    async with running_mesh(environment=room) as mesh:
        await asyncio.sleep(SETTLE_SECONDS)
        others = processes_below(mesh.pid)
        boxes = [box_of(mesh) for _ in range(count)]
        await _some_at_a_time(boxes, first_result)
        await asyncio.sleep(SETTLE_SECONDS)
        inside = processes_below(mesh.pid) - others
        running, _ = _memory(inside)
        await _some_at_a_time(boxes, BaseSandboxAsync.pause)
        await asyncio.sleep(SETTLE_SECONDS)
        resident, swapped = _memory(inside)
        idle = await _idle(mesh, inside)
        found = [
            Figure("memory of each while it runs", _mib(running / count)),
            Figure("memory of each that is paused, beyond swap", _mib(resident / count), "2 MiB"),
            Figure("  of it in swap", _mib(swapped / count)),
            *idle,
            *await _wakes(boxes, wakes),
            await _crowd(mesh, boxes[0], requests),
        ]
        await _some_at_a_time(boxes, BaseSandboxAsync.close)
    return found


async def _some_at_a_time(
    boxes: Sequence[BaseSandboxAsync], act: Callable[[BaseSandboxAsync], Awaitable[object]]
) -> None:
    left = iter(boxes)

    async def go_on() -> None:
        for box in left:
            await act(box)

    await asyncio.gather(*(go_on() for _ in range(AT_ONCE)))


def _memory(pids: set[int]) -> tuple[int, int]:
    """Return the proportional bytes of processes together, and those in swap."""
    totals = {"Pss:": 0, "SwapPss:": 0}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for name, value, *_ in (line.split() for line in lines[1:]):
            if name in totals:
                totals[name] += int(value) * 1024
    return totals["Pss:"], totals["SwapPss:"]


async def _idle(mesh: RunningMesh, inside: set[int]) -> list[Figure]:
    parts = {"the paused sandboxes": inside, "the mesh": {mesh.pid, *processes_below(mesh.pid)} - inside}
    before = {name: sum(spent(pid).seconds for pid in pids) for name, pids in parts.items()}
    await asyncio.sleep(IDLE_SECONDS)
    return [
        Figure(
            f"processor time of {name} in {IDLE_SECONDS:g} s",
            f"{(sum(spent(pid).seconds for pid in pids) - before[name]) * 1e3:.1f} ms",
            "0" if pids is inside else "",
        )
        for name, pids in parts.items()
    ]


async def _wakes(boxes: Sequence[BaseSandboxAsync], wakes: int) -> list[Figure]:
    waking: list[float] = []
    awake: list[float] = []
    for number in range(wakes):
        box = boxes[number * 7 % len(boxes)]
        waking.append(await _seconds(box))
        awake.append(await _seconds(box))
        await box.pause()
    return [
        Figure(f"a call that wakes one of {len(boxes)}", _spread(waking), "10 ms"),
        Figure("  the same call when it is awake", _spread(awake)),
    ]


async def _seconds(box: BaseSandboxAsync) -> float:
    began = time.perf_counter()
    result = await box.run_ipython_cell("1+1")
    seconds = time.perf_counter() - began
    if result.text.strip() != "2":
        raise RuntimeError(f"the sandbox answered {result!r}")
    return seconds


async def _crowd(mesh: RunningMesh, box: BaseSandboxAsync, requests: int) -> Figure:
    """Call a paused sandbox so often at the same time.

    Raises:
        RuntimeError: An answer is wrong, or it was woken more than once.
    """
    async with MeshAsync(mesh.address) as client:
        events = await client.events.list(sandbox_id=box.sandbox_id)
        before = sum(event.kind == "resumed" for event in events)
        began = time.perf_counter()
        answers = await asyncio.gather(*(box.run_shell_command(f"echo {number}") for number in range(requests)))
        seconds = time.perf_counter() - began
        events = await client.events.list(sandbox_id=box.sandbox_id)
        resumed = sum(event.kind == "resumed" for event in events) - before
    right = sum(answer.text.strip() == str(number) for number, answer in enumerate(answers))
    if (right, resumed) != (requests, 1):
        raise RuntimeError(f"{right} of {requests} requests were answered, by {resumed} wakes")
    what = f"{requests} requests at the same time to a paused one"
    return Figure(what, f"{right} answers, {resumed} wake, {seconds:.2f} s")


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.2f} MiB"


def _spread(seconds: Sequence[float]) -> str:
    last = sorted(seconds)[int(len(seconds) * 0.99)]
    return f"p50 {statistics.median(seconds) * 1e3:.1f} ms, p99 {last * 1e3:.1f} ms"


def main() -> None:
    """Measure and print."""
    parser = arguments("benchmarks.paused", __doc__)
    parser.add_argument("count", nargs="?", type=int, default=COUNT, help="how many sandboxes", metavar="COUNT")
    parser.add_argument("--wakes", type=int, default=WAKES, help="how many are woken")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="how many call a paused one at the same time")
    chosen = parser.parse_args()
    if min(chosen.count, chosen.wakes, chosen.requests) < 1:
        parser.error("COUNT, WAKES and REQUESTS are at least 1")
    found = asyncio.run(measure(chosen.count, chosen.wakes, chosen.requests))
    show(found, f"{chosen.count} paused sandboxes; {machine()}", as_markdown=chosen.markdown)


if __name__ == "__main__":
    main()
