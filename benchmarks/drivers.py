"""The same work on each driver of this machine, in turns within one run, as multiples of an empty gRPC call."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.figures import Figure, box_of, timed
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.yardstick import EmptyCall, empty_calls
from sandmesh import BaseSandboxAsync, Output

DRIVERS = ("bubblewrap", "docker", "gvisor")
ROUNDS = 10
CALLS = 20
OUTPUT_BYTES = 64 << 20
OUTPUTS: Mapping[str, str] = {
    "output of head, 8 KiB a write": f"head -c {OUTPUT_BYTES} /dev/zero",
    "output of dd, 64 KiB a write": f"dd if=/dev/zero bs=64k count={OUTPUT_BYTES >> 16} 2>/dev/null",
}
IMAGE = "sandmesh/base:latest"
RUN = "docker run --rm IMAGE true"
CREATED, CREATE, CELL, COMMAND, NOTHING = (
    "cold create",
    "cold create -> first Python result",
    'run_ipython_cell("1+1")',
    'run_shell_command("true")',
    "an empty gRPC call",
)


class Samples:
    """What was measured on one driver."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.rates: dict[str, list[float]] = {}

    async def round(self, mesh: RunningMesh, box: BaseSandboxAsync, empty: EmptyCall) -> None:
        """Measure everything once."""
        if mesh.in_docker:
            self._add(RUN, await timed(_run_container()))
        made = box_of(mesh)
        created = await timed(made.start())
        self._add(CREATED, created)
        self._add(CREATE, created + await timed(made.run_ipython_cell("1+1")))
        await made.close()
        for _ in range(CALLS):
            self._add(NOTHING, await timed(empty()))
            self._add(CELL, await timed(box.run_ipython_cell("1+1")))
            self._add(COMMAND, await timed(box.run_shell_command("true")))
        for what, command in OUTPUTS.items():
            self.rates.setdefault(what, []).append(await output_rate(box, command))

    def _add(self, what: str, seconds: float) -> None:
        self.seconds.setdefault(what, []).append(seconds)

    def figures(self, driver: str) -> list[Figure]:
        """Return the lines of a driver."""
        unit = statistics.median(self.seconds[NOTHING])
        lines = [Figure(f"{driver}: {NOTHING}, in turns", f"p50 {unit * 1e3:.2f} ms")]
        for what, taken in self.seconds.items():
            if what == NOTHING:
                continue
            p50, least = statistics.median(taken), min(taken)
            text = f"p50 {p50 * 1e3:.2f} ms, least {least * 1e3:.2f} ms: {p50 / unit:.1f} times"
            lines.append(Figure(f"  {what}", text))
        if RUN in self.seconds:
            for what, aim in ((CREATED, "1.3 times"), (CREATE, "")):
                ratios = [ours / plain for ours, plain in zip(self.seconds[what], self.seconds[RUN], strict=True)]
                lines.append(Figure(f"  {what}, of {RUN}", f"p50 {statistics.median(ratios):.2f} times", aim))
        for what, rates in self.rates.items():
            text = f"{statistics.median(rates):,.0f} MB/s, at most {max(rates):,.0f}"
            lines.append(Figure(f"  {what}", text))
        return lines


async def _run_container() -> None:
    command = ("docker", "run", "--rm", "--entrypoint", "true", IMAGE)
    # Settings of meshes name the engine by the driver's own variable.
    url = os.environ.get("SANDMESH_DOCKER_URL")
    variables = {**os.environ, **({"DOCKER_HOST": url} if url else {})}
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=nothing, stderr=nothing, env=variables)
    if await process.wait() != 0:
        raise RuntimeError(f"{' '.join(command)} failed with {process.returncode}")


async def output_rate(box: BaseSandboxAsync, command: str) -> float:
    """Return the MB a second that `OUTPUT_BYTES` of a command's output come with."""
    started, got = time.perf_counter(), 0
    async for event in box.stream("run_shell_command", command=command):
        got += len(event.data) if isinstance(event, Output) else 0
    if got != OUTPUT_BYTES:
        raise RuntimeError(f"{got} bytes of {OUTPUT_BYTES} came")
    return got / (time.perf_counter() - started) / 1e6


@asynccontextmanager
async def box_on(driver: str) -> AsyncGenerator[tuple[RunningMesh, BaseSandboxAsync]]:
    """Give a mesh on a driver, and a sandbox that has done everything once."""
    async with running_mesh(environment={"SANDMESH_DRIVER": driver}) as mesh, box_of(mesh) as box:
        await box.run_ipython_cell("1+1")
        await box.run_shell_command("true")
        # Its agent has imported all tools then.
        await box.list_tools()
        yield mesh, box


async def drivers() -> list[Figure]:
    """Measure every driver that works here; why another does not is its line."""
    found: list[Figure] = []
    async with AsyncExitStack() as stack:
        empty = await stack.enter_async_context(empty_calls())
        boxes: dict[str, tuple[RunningMesh, BaseSandboxAsync]] = {}
        for driver in DRIVERS:
            try:
                boxes[driver] = await stack.enter_async_context(box_on(driver))
            except RuntimeError as error:
                found.append(Figure(driver, f"not measured: {error}"))
        samples = {driver: Samples() for driver in boxes}
        for _ in range(ROUNDS):
            for driver, (mesh, box) in boxes.items():
                await samples[driver].round(mesh, box, empty)
    return [*(line for driver, one in samples.items() for line in one.figures(driver)), *found]
