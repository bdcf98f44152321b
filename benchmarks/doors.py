"""E2B's own client, as it is published, through its door, beside our own SDK, in turns.

`python -m benchmarks.doors` installs the client into a directory that is removed at the end, and starts a mesh with the
door. What the machine does beside meets both alike. Both clients run in this process; the mesh is another.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, spread, timed
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync

CLIENT = "e2b==2.63.0"
MIB = 1 << 20
LARGE = 100 * MIB
STREAM = 1024 * MIB
COMMAND = ["/bin/bash", "-l", "-c", "true"]
"""What E2B's clients start for `commands.run("true")`."""


@dataclass(frozen=True)
class Pair:
    """A sandbox of each client, the class of the one and the mesh of both."""

    theirs: Any
    ours: BaseSandboxAsync
    mesh: RunningMesh
    sandbox_class: Any


Operation = Callable[[], Awaitable[object]]


async def in_turns(theirs: Operation, ours: Operation, rounds: int) -> tuple[list[float], list[float]]:
    """Measure both, each round beginning with the other one of the two."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            seconds[which].append(await timed((theirs, ours)[which]()))
    return seconds


def beside(what: str, found: tuple[list[float], list[float]], aim_ms: float) -> list[Figure]:
    """Return the figures of both, and the difference of the medians."""
    theirs, ours = found
    above = (statistics.median(theirs) - statistics.median(ours)) * 1e3
    return [
        Figure(f"{what} by E2B's client", spread(theirs)),
        Figure("  by our SDK", spread(ours)),
        Figure("  the difference of the medians", f"{above:+.2f} ms", f"{aim_ms:.0f} ms"),
    ]


async def commands(pair: Pair) -> list[Figure]:
    """Measure a command from start to end."""

    async def ours() -> None:
        async with await pair.ours.processes.start(COMMAND) as process:
            await process.wait()

    async def theirs() -> None:
        await pair.theirs.commands.run("true")

    await in_turns(theirs, ours, 10)
    return beside('commands.run("true")', await in_turns(theirs, ours, 200), 4)


async def creates(pair: Pair) -> list[Figure]:
    """Measure creates; the ends are not measured."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(42):
        for which in (0, 1) if number % 2 else (1, 0):
            # In which the driver prepares the next.
            await asyncio.sleep(0.3)
            started = time.perf_counter()
            if which == 0:
                made = await pair.sandbox_class.create(timeout=60)
                seconds[0].append(time.perf_counter() - started)
                await made.kill()
            else:
                box = await BaseSandboxAsync(base_url=pair.mesh.address).start()
                seconds[1].append(time.perf_counter() - started)
                await box.close()
    return beside("create", (seconds[0][2:], seconds[1][2:]), 15)


async def files(pair: Pair) -> list[Figure]:
    """Measure a large file, written and read whole."""
    data, found = os.urandom(LARGE), list[Figure]()

    async def read() -> None:
        if len(await pair.theirs.files.read("big", format="bytes")) != LARGE:
            raise RuntimeError("the file is not whole")

    async def read_ours() -> None:
        await pair.ours.fs.read("big", "bytes")

    for what, theirs, ours in (
        ("write of 100 MiB", lambda: pair.theirs.files.write("big", data), lambda: pair.ours.fs.write("big", data)),
        ("read of 100 MiB", read, read_ours),
    ):
        seconds = await in_turns(theirs, ours, 5)
        rates = [f"{LARGE / 1e6 / statistics.median(taken):,.0f} MB/s" for taken in seconds]
        found += [Figure(f"file {what} by E2B's client", rates[0], "150 MB/s"), Figure("  by our SDK", rates[1])]
    return found


async def at_once(pair: Pair) -> list[Figure]:
    """Measure 200 clients that each connect and run a command."""

    async def client() -> None:
        box = await pair.sandbox_class.connect(pair.theirs.sandbox_id)
        if (await box.commands.run("echo hello")).stdout != "hello\n":
            raise RuntimeError("a client got another answer")

    seconds = await timed(asyncio.gather(*(client() for _ in range(200))))
    return [Figure("200 clients at once, each connects and runs a command", f"{seconds:.2f} s, all answered")]


async def memory(pair: Pair) -> list[Figure]:
    """Measure how much memory the mesh takes for 1 GiB each way."""
    resident = _Resident(pair.mesh.pid)
    async with resident:
        with tempfile.TemporaryFile() as file:
            for _ in range(STREAM // MIB):
                file.write(bytes(MIB))
            file.seek(0)
            await pair.theirs.files.write("stream", file)
        taken = 0
        stream: AsyncIterator[bytes] = await pair.theirs.files.read("stream", format="stream")
        async for chunk in stream:
            taken += len(chunk)
    if taken != STREAM:
        raise RuntimeError(f"{taken} bytes of {STREAM} arrived")
    await pair.theirs.files.remove("stream")
    return [
        Figure("memory that a stream of 1 GiB each way adds to the mesh", f"{resident.added / MIB:.0f} MiB at most")
    ]


class _Resident:
    """Follows how much memory a process has."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/statm")
        self._before = self._read()
        self._most = self._before

    @property
    def added(self) -> int:
        """Return by how many bytes it grew at most."""
        return self._most - self._before

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._follow())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        while True:
            self._most = max(self._most, self._read())
            await asyncio.sleep(0.05)

    def _read(self) -> int:
        return int(self._path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


MEASURED = {"commands": commands, "creates": creates, "files": files, "at_once": at_once, "memory": memory}


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def measure(names: list[str], library: str) -> list[Figure]:
    """Measure what has these names, with the client of a directory."""
    url = f"127.0.0.1:{free_port()}"
    environment = {"SANDMESH_E2B": "true", "SANDMESH_HTTP_LISTEN": f'["{url}"]'}
    async with running_mesh(environment=environment) as mesh:
        async with MeshAsync(mesh.address) as client:
            key = (await client.tokens.create("bench", form="e2b")).secret
        os.environ |= {"E2B_API_URL": f"http://{url}", "E2B_SANDBOX_URL": f"http://{url}", "E2B_API_KEY": key}
        sys.path.append(library)
        sandbox_class: Any = import_module("e2b").AsyncSandbox
        theirs = await sandbox_class.create(timeout=3000)
        async with BaseSandboxAsync(base_url=mesh.address) as ours:
            pair = Pair(theirs, ours, mesh, sandbox_class)
            return [figure for name in names for figure in await MEASURED[name](pair)]


def main() -> None:
    """Run the benchmark."""
    parser = arguments("benchmarks.doors", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASURED))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as library:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", library, CLIENT]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        found = asyncio.run(measure(options.names or list(MEASURED), library))
    show(found, machine(), as_markdown=options.markdown)


if __name__ == "__main__":
    main()
