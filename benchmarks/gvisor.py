"""`python -m benchmarks.gvisor`: commands and output on gVisor beside a container of the same image without a mesh.

In turns, a sandbox runs `true` and writes output, and in a plain container of runsc, where nothing of the mesh is, a
program starts `bash -c true` by posix_spawn, and pipes the same output into `cat`: what that takes, no mesh on this
runtime can do without.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from benchmarks.drivers import COMMAND, IMAGE, OUTPUT_BYTES, OUTPUTS, box_on, output_rate
from benchmarks.figures import Figure, timed
from benchmarks.report import arguments, machine, show

ROUNDS: Final = 10
COMMANDS: Final = 10
PAUSE_SECONDS: Final = 0.02
START_SECONDS: Final = 60.0
PLAIN: Final = """
import json, os, subprocess, sys, time
print("ready", flush=True)
for line in sys.stdin:
    command = json.loads(line)
    started = time.perf_counter()
    if command:
        subprocess.run(["bash", "-c", command + " | cat > /dev/null"], check=True)
    else:
        os.waitpid(os.posix_spawn("/bin/bash", ["bash", "-c", "true"], os.environ), 0)
    print(time.perf_counter() - started, flush=True)
"""


class Plain:
    """A container in which nothing of the mesh runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        """Return the program's next line."""
        if self._process.stdout is None:
            raise RuntimeError("the container's output is not read")
        line = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS)
        if not line:
            raise RuntimeError("the container ended; see above")
        return line.decode().strip()

    async def seconds(self, command: str) -> float:
        """Return how long a command with its output into `cat` takes; "": how long bash does that does nothing."""
        if self._process.stdin is None:
            raise RuntimeError("the container's input is not written")
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return float(await self.line())


@asynccontextmanager
async def plain_container() -> AsyncGenerator[Plain]:
    """Run a container of the image on runsc, without a network."""
    url = os.environ.get("SANDMESH_DOCKER_URL")
    program = ("--entrypoint", "python3", IMAGE, "-c", PLAIN)
    process = await asyncio.create_subprocess_exec(
        *("docker", "run", "--rm", "-i", "--runtime", "runsc", "--network", "none", *program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **({"DOCKER_HOST": url} if url else {})},
    )
    try:
        plain = Plain(process)
        await plain.line()
        yield plain
    finally:
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.wait_for(process.wait(), START_SECONDS)


async def gvisor() -> list[Figure]:
    """Measure both in turns."""
    ours: dict[str, list[float]] = {what: [] for what in (COMMAND, *OUTPUTS)}
    alone: dict[str, list[float]] = {what: [] for what in (COMMAND, *OUTPUTS)}
    async with box_on("gvisor") as (_, box), plain_container() as plain:
        for _ in range(ROUNDS):
            for _ in range(COMMANDS):
                await asyncio.sleep(PAUSE_SECONDS)
                ours[COMMAND].append(await timed(box.run_shell_command("true")))
                await asyncio.sleep(PAUSE_SECONDS)
                alone[COMMAND].append(await plain.seconds(""))
            for what, command in OUTPUTS.items():
                ours[what].append(await output_rate(box, command))
                alone[what].append(OUTPUT_BYTES / await plain.seconds(command) / 1e6)
    return [*_command_figures(ours[COMMAND], alone[COMMAND])] + [
        _rate_figure(what, ours[what], alone[what]) for what in OUTPUTS
    ]


def _command_figures(ours: list[float], alone: list[float]) -> list[Figure]:
    def spread(values: list[float]) -> str:
        tenth, quarter, half = (sorted(values)[len(values) // part] * 1e3 for part in (10, 4, 2))
        return f"least {min(values) * 1e3:.1f}, tenth {tenth:.1f}, quarter {quarter:.1f}, p50 {half:.1f} ms"

    ratio = statistics.median(ours) / statistics.median(alone)
    return [
        Figure(f"gvisor: {COMMAND}", spread(ours), "20 ms"),
        Figure("  bash -c true in a plain container", spread(alone)),
        Figure("  the one as a multiple of the other, p50", f"{ratio:.2f}"),
    ]


def _rate_figure(what: str, ours: list[float], alone: list[float]) -> Figure:
    here, there = statistics.median(ours), statistics.median(alone)
    text = f"{here:,.0f} MB/s, at most {max(ours):,.0f}; into cat in a plain container {there:,.0f}, "
    return Figure(f"gvisor: {what}", f"{text}at most {max(alone):,.0f}: {here / there:.2f} of that", "100 MB/s")


def main() -> None:
    """Measure and print."""
    parser = arguments("benchmarks.gvisor", __doc__)
    options = parser.parse_args()
    title = machine()
    show(asyncio.run(gvisor()), title, as_markdown=options.markdown)


if __name__ == "__main__":
    main()
