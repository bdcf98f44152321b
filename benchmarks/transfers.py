"""Files of a gigabyte both ways: how fast, and the most memory that each process had."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.meshes import RunningMesh, processes_below
from sandmesh import BaseSandboxAsync
from sandmeshd.runtime.paths import default_state_directory

BYTES = 1 << 30
_PIECE = bytes(1 << 20)


async def files(mesh: RunningMesh) -> list[Figure]:
    """Measure transfers with a client in a process of its own, so that its memory is the transfer's."""
    async with BaseSandboxAsync(base_url=mesh.address) as box:
        await box.run_shell_command("true")
        found = [Figure("a 1 GB file that a local program writes, as a bound", _local())]
        for way, what in (("up", "a 1 GB file into a sandbox"), ("down", "a 1 GB file out of a sandbox")):
            measured = await _client(mesh.address, box.sandbox_id, way)
            found.append(Figure(what, f"{BYTES / measured['seconds'] / 1e6:,.0f} MB/s", "300 MB/s"))
            found.append(Figure("  peak memory: client", f"{measured['peak'] / 1e6:.0f} MB", "flat"))
            found.append(Figure("  mesh process", _peak(mesh.pid), "flat"))
            # The agent is the largest of the sandbox's: its kernel did nothing.
            below = max(processes_below(mesh.pid), key=peak_bytes, default=mesh.pid)
            found.append(Figure("  largest process below it", _peak(below), "flat"))
    return found


def _local() -> str:
    with tempfile.TemporaryFile(dir=default_state_directory()) as file:
        started = time.perf_counter()
        for _ in range(BYTES // len(_PIECE)):
            file.write(_PIECE)
        return f"{BYTES / (time.perf_counter() - started) / 1e6:,.0f} MB/s"


async def _client(address: str, sandbox_id: str, way: str) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.transfers", address, sandbox_id, way, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    measured: dict[str, float] = json.loads(out)
    return measured


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process ever had resident; 0 of one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _peak(pid: int) -> str:
    return f"{peak_bytes(pid) / 1e6:.0f} MB"


async def _carry(address: str, sandbox_id: str, way: str) -> float:
    async def source() -> AsyncIterator[bytes]:
        for _ in range(BYTES // len(_PIECE)):
            yield _PIECE

    async with BaseSandboxAsync(sandbox_id, base_url=address) as box:
        started = time.perf_counter()
        if way == "up":
            await box.fs.write("big", source())
        else:
            got = 0
            async with await box.fs.read("big", "stream") as stream:
                async for chunk in stream:
                    got += len(chunk)
            if got != BYTES:
                raise RuntimeError(f"{got} bytes of {BYTES} came")
        return time.perf_counter() - started


def main() -> None:
    """Carry one file and say how long it took, and the most memory that this process had."""
    seconds = asyncio.run(_carry(*sys.argv[1:4]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak": peak}))


if __name__ == "__main__":
    main()
