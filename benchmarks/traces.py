"""What traces cost a call: off, and sampled at 1 in 100, against a mesh and a client that have no OpenTelemetry loaded.

`python -m benchmarks.traces` runs each kind in turns and prints what a call took by ratio, with the
processor time of client and mesh beside it, which other load of the machine changes less. The
collector listens and reads all that it is sent, in this process.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.otlp import open_collector

from benchmarks.figures import Figure
from benchmarks.meshes import RunningMesh, running_mesh

ROUNDS = 9
CALLS = 400
WARM_UP = 100

_SAMPLED = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}
_CLIENT = f"""
import asyncio, os, sys, time
if sys.argv[1] != "none":
    from opentelemetry import trace
if sys.argv[1] == "sampled":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
from sandmesh import BaseSandboxAsync

async def main():
    async with BaseSandboxAsync() as box:
        for _ in range({WARM_UP}):
            await box.run_ipython_cell("1+1")
        print("ready", flush=True)
        while sys.stdin.readline().strip():
            began, used = time.perf_counter(), time.process_time()
            for _ in range({CALLS}):
                await box.run_ipython_cell("1+1")
            print((time.perf_counter() - began) / {CALLS}, (time.process_time() - used) / {CALLS}, flush=True)

asyncio.run(main())
"""


async def traces() -> list[Figure]:
    """Return what a call takes more where traces are off, and where 1 in 100 is recorded."""
    async with AsyncExitStack() as stack:
        collector = await stack.enter_async_context(open_collector())
        recorded = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector.address}", **_SAMPLED}
        plain = await stack.enter_async_context(running_mesh())
        tracing = await stack.enter_async_context(running_mesh(environment=recorded))
        clients = {
            "none": await _client(stack, plain, "none", {}),
            "off": await _client(stack, plain, "off", {}),
            "sampled": await _client(stack, tracing, "sampled", recorded),
        }
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
        for _ in range(ROUNDS):
            for name, client in clients.items():
                took[name].append(await _round(client, tracing if name == "sampled" else plain))
        received = sum(span.name.startswith("call ") for span in collector.spans)
    elapsed, processor = (statistics.median(one) * 1e3 for one in zip(*took["none"], strict=True))
    return [
        Figure("a call without OpenTelemetry", f"{elapsed:.2f} ms, processor {processor:.2f} ms"),
        Figure("  with its API, nothing recorded", _ratios(took["off"], took["none"]), "< 1.03"),
        Figure("  1 call in 100 recorded, at both ends", _ratios(took["sampled"], took["none"]), "< 1.1"),
        Figure("  calls that the collector received", f"{received} of {(ROUNDS + 1) * CALLS}"),
        Figure("  load of this machine", f"{os.getloadavg()[0]:.1f}"),
    ]


def _ratios(found: Sequence[tuple[float, float]], base: Sequence[tuple[float, float]]) -> str:
    """Return medians of ratios within rounds, so that what slows a whole round counts on both sides."""
    pairs = list(zip(found, base, strict=True))
    elapsed, processor = (statistics.median(one[at] / other[at] for one, other in pairs) for at in (0, 1))
    return f"{elapsed:.3f} times, processor {processor:.3f}"


async def _client(
    stack: AsyncExitStack, mesh: RunningMesh, kind: str, variables: Mapping[str, str]
) -> asyncio.subprocess.Process:
    environment = {**os.environ, **variables, "SANDMESH_ADDRESS": mesh.address}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, kind, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    stack.push_async_callback(_end, process)
    await _line(process)
    return process


async def _round(process: asyncio.subprocess.Process, mesh: RunningMesh) -> tuple[float, float]:
    """Return what a call took, and what processor time it took at both ends, in seconds."""
    before = _processor_seconds(mesh.pid)
    if process.stdin is not None:
        process.stdin.write(b"go\n")
    elapsed, processor = map(float, (await _line(process)).split())
    return elapsed, processor + (_processor_seconds(mesh.pid) - before) / CALLS


async def _line(process: asyncio.subprocess.Process) -> str:
    if process.stdout is None or not (line := await process.stdout.readline()):
        raise RuntimeError("the client ended; see above")
    return line.decode()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()


if __name__ == "__main__":
    for figure in asyncio.run(traces()):
        print(f"{figure.what:45} {figure.measured:30} {figure.aim}")
