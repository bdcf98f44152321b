"""A gigabyte of output, small events and a slow reader: how fast, and the most memory that each process had."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time

from benchmarks.figures import Figure
from benchmarks.meshes import RunningMesh, processes_below
from benchmarks.transfers import peak_bytes
from sandmesh import BaseSandboxAsync, ContentBlock, Output

BYTES = 1 << 30
LINES = 100_000
SLOW_READS = 30
EVENTS = 20_000
_SHOWS = f"for n in range({EVENTS}): show({{'text/plain': str(n)}})"
_PRINTS = f"import sys; [(sys.stdout.write(str(n)), sys.stdout.flush()) for n in range({LINES})]"


async def streams(mesh: RunningMesh) -> list[Figure]:
    """Measure with a client in a process of its own, so that its memory is the stream's."""
    async with BaseSandboxAsync(base_url=mesh.address) as box:
        await box.run_shell_command("true")
        found: list[Figure] = []
        for way, what, aim in (
            ("large", "1 GB of a process's output", "300 MB/s"),
            ("small", "writes of a few bytes, joined on their way", "10,000 a second"),
            ("events", "small events of a cell, each by itself", "10,000 a second"),
            ("slow", "a writer whose reader takes 64 KiB every 100 ms", "waits"),
        ):
            measured = await _client(mesh.address, box.sandbox_id, way)
            found.append(Figure(what, str(measured["said"]), aim))
            below = max((peak_bytes(pid) for pid in processes_below(mesh.pid)), default=0)
            peaks = [float(measured["peak"]), peak_bytes(mesh.pid), below]
            shown = ", ".join(f"{peak / 1e6:.0f}" for peak in peaks)
            found.append(Figure("  peak RSS: client, mesh, largest below it", f"{shown} MB", "flat"))
    return found


async def _client(address: str, sandbox_id: str, way: str) -> dict[str, str | float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.streams", address, sandbox_id, way, stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    measured: dict[str, str | float] = json.loads(out)
    return measured


async def _follow(address: str, sandbox_id: str, way: str) -> str:
    commands = {"large": f"head -c {BYTES} /dev/zero", "small": f'python3 -c "{_PRINTS}"', "slow": "cat /dev/zero"}
    async with BaseSandboxAsync(sandbox_id, base_url=address) as box:
        if way == "events":
            return await _count_events(box)
        started, got, reads = time.perf_counter(), 0, 0
        async with await box.processes.start(commands[way]) as process:
            async for event in process:
                got += len(event.data) if isinstance(event, Output) else 0
                reads += 1
                if way == "slow":
                    await asyncio.sleep(0.1)
                    if reads == SLOW_READS:
                        break
        seconds = time.perf_counter() - started
    if way == "slow":
        return f"{got / 1e6:.1f} MB in {seconds:.1f} s"
    return f"{got / seconds / 1e6:,.0f} MB/s" if way == "large" else f"{LINES / seconds:,.0f} a second"


async def _count_events(box: BaseSandboxAsync) -> str:
    await box.run_ipython_cell("from IPython.display import publish_display_data as show")
    started, count = time.perf_counter(), 0
    async for event in box.stream("run_ipython_cell", code=_SHOWS):
        count += isinstance(event, ContentBlock)
    if count != EVENTS:
        raise RuntimeError(f"{count} events of {EVENTS} came")
    return f"{count / (time.perf_counter() - started):,.0f} a second"


def main() -> None:
    """Follow one stream and say how it went, and the most memory that this process had."""
    said = asyncio.run(_follow(*sys.argv[1:4]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"said": said, "peak": peak}))


if __name__ == "__main__":
    main()
