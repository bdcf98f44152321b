"""A cloud's link beside a local one, in turns: WebSockets behind TLS on loopback, and the unix socket of a sandbox.

The cloud is the tests' stand-in for Function Compute in a process of its own, whose gateway is a program in Python and
takes part of the time: `python -m benchmarks.links FOLDER` serves it. It needs root, for the network namespaces of its
instances.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.clouds.function_compute import KEYS, stand_in
from tests.unit.agent.sandbox import prepare_ground

from benchmarks.figures import Figure, box_of, timed
from benchmarks.meshes import running_mesh
from sandmesh import BaseSandboxAsync, Output

ROUNDS, CALLS = 20, 10
BULK_ROUNDS, BULK_BYTES = 3, 1 << 30


@asynccontextmanager
async def _cloud() -> AsyncGenerator[dict[str, str]]:
    """Run a stand-in; yield the variables with which a mesh uses it."""
    [(key, secret)] = KEYS.items()
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "benchmarks.links", folder)
        process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            if process.stdout is None or not (line := await process.stdout.readline()):
                raise RuntimeError("the stand-in did not start; see above")
            yield {
                "SANDMESH_DRIVER": "fc",
                "SANDMESH_FC_ENDPOINT": json.loads(line)["endpoint"],
                "SANDMESH_FC_ACCESS_KEY_ID": key,
                "SANDMESH_FC_ACCESS_KEY_SECRET": secret,
                "SSL_CERT_FILE": f"{folder}/authority.pem",
                "NO_PROXY": "localhost,127.0.0.1",
            }
        finally:
            # It ends, with its instances, at the end of its input.
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()


async def links() -> list[Figure]:
    """Measure calls and output by both links in turns."""
    async with (
        _cloud() as variables,
        running_mesh(environment=variables) as rented,
        running_mesh(environment={"SANDMESH_DRIVER": "bubblewrap"}) as local,
        box_of(rented) as far,
        box_of(local) as near,
    ):
        calls: dict[BaseSandboxAsync, list[float]] = {near: [], far: []}
        rates: dict[BaseSandboxAsync, list[float]] = {near: [], far: []}
        for box in calls:
            await box.run_ipython_cell("1+1")
        for _ in range(ROUNDS):
            for box, seconds in calls.items():
                seconds += [await timed(box.run_ipython_cell("1+1")) for _ in range(CALLS)]
        for _ in range(BULK_ROUNDS):
            for box, found in rates.items():
                found.append(await _output_rate(box))
    near_ms, far_ms = (statistics.median(calls[box]) * 1e3 for box in (near, far))
    near_rate, far_rate = (statistics.median(rates[box]) / 1e6 for box in (near, far))
    return [
        Figure('run_ipython_cell("1+1"): unix socket', f"p50 {near_ms:.2f} ms"),
        Figure("  wss", f"p50 {far_ms:.2f} ms, {far_ms / near_ms:.2f} times", "3 times"),
        Figure("1 GiB of a process's output: unix socket", f"{near_rate:,.0f} MB/s"),
        Figure("  wss", f"{far_rate:,.0f} MB/s", "150 MB/s"),
    ]


async def _output_rate(box: BaseSandboxAsync) -> float:
    """Return the bytes a second of a process that prints."""
    started, size = time.perf_counter(), 0
    async with await box.processes.start(f"head -c {BULK_BYTES} /dev/zero") as process:
        async for event in process:
            size += len(event.data) if isinstance(event, Output) else 0
    if size != BULK_BYTES:
        raise RuntimeError(f"{size} bytes of {BULK_BYTES} came")
    return size / (time.perf_counter() - started)


async def _serve(folder: Path) -> None:
    async with stand_in(folder, await prepare_ground()) as cloud:
        print(json.dumps({"endpoint": cloud.endpoint}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
