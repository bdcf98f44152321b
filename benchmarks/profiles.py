"""Where the time of one call and of one cold create goes."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, box_of, spread, timed
from benchmarks.meshes import RunningMesh, processes_below, running_mesh
from sandmesh import BaseSandboxAsync

CALLS = 500
CREATES = 20
ON_THE_WAY = ("session_open", "claim", "started", "ready")
"""The scripts of the store that a cold create waits for; the record's and the claim's run at one time."""
BIRTH = {"init": "its PID 1 is there", "user": "user code's side is there", "ready": "its agent listens"}
_INSIDE = """
import time as _time
def _measure(shell=get_ipython()):
    class Quiet:
        show = place = staticmethod(list)
    channel, shell.channel = shell.channel, Quiet
    seconds = []
    for _ in range(300):
        began = _time.perf_counter()
        shell.run_cell("1+1", store_history=True)
        seconds.append(_time.perf_counter() - began)
    shell.channel = channel
    return sorted(seconds)[150]
print(_measure())
"""


@dataclass(frozen=True)
class Spent:
    """What a process has used so far: seconds of processor time, and how often it woke."""

    seconds: float
    wakes: int


async def profile() -> list[Figure]:
    """Return both tables, from a mesh that logs each step."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        async with running_mesh(log=log) as mesh:
            return [*await _call(mesh), *await _create(mesh, log)]


async def _call(mesh: RunningMesh) -> list[Figure]:
    async with box_of(mesh) as box:
        for _ in range(50):
            await box.run_ipython_cell("1+1")
        pids = [os.getpid(), mesh.pid, *sorted(processes_below(mesh.pid))]
        before = {pid: spent(pid) for pid in pids}
        seconds = [await timed(box.run_ipython_cell("1+1")) for _ in range(CALLS)]
        used = [_share(pid, before[pid]) for pid in pids]
        inside = float((await box.run_ipython_cell(_INSIDE)).text.splitlines()[0])
    async with _chain() as ask:
        empty = [await timed(ask()) for _ in range(CALLS)]
    return [
        Figure('one call, run_ipython_cell("1+1")', spread(seconds)),
        *[figure for figure in used if figure is not None],
        Figure("  of the kernel's, IPython itself", f"{inside * 1e6:.0f} us"),
        Figure("  as many processes that only pass bytes on", spread(empty)),
    ]


def spent(pid: int) -> Spent:
    """Read what a process used; one that is gone used nothing."""
    nanoseconds = wakes = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[0])
            lines = (task / "status").read_text().splitlines()
            wakes += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    except (FileNotFoundError, ProcessLookupError):
        return Spent(0.0, 0)
    return Spent(nanoseconds / 1e9, wakes)


def _share(pid: int, before: Spent) -> Figure | None:
    """Return what each call cost a process; None for a process without a part in it."""
    now = spent(pid)
    each = (now.seconds - before.seconds) / CALLS * 1e6
    if each < 5:
        return None
    wakes = (now.wakes - before.wakes) / CALLS
    return Figure(f"  processor time of the {_part(pid)}", f"{each:.0f} us, wakes {wakes:.1f} times")


def _part(pid: int) -> str:
    if pid == os.getpid():
        return "client"
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "up" in words:
        return "gateway (and all services)"
    if "--zygote-fd" in words:
        return "agent"
    return "kernel" if "template_process" in words else Path(words[0]).name


@asynccontextmanager
async def _chain() -> AsyncGenerator[Ask]:
    """Run three processes in a row that pass bytes on and back, as gateway, agent and kernel do at the least."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{number}" for number in range(4)]
        relays = [await _relay(paths[at], paths[at + 1] if at < 2 else "") for at in (2, 1, 0)]
        try:
            reader, writer = await asyncio.open_unix_connection(paths[0])
            yield Ask(reader, writer)
            writer.close()
        finally:
            for relay in relays:
                relay.terminate()
                await relay.wait()


class Ask:
    """Sends a message of a call's size and waits for it to come back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def __call__(self) -> None:
        """Send one and wait."""
        self._writer.write(bytes(200))
        await self._reader.readexactly(200)


async def _relay(own: str, onward: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.relay", own, onward, stdout=asyncio.subprocess.PIPE
    )
    if process.stdout is not None:
        await process.stdout.readline()
    return process


async def _create(mesh: RunningMesh, log: Path) -> list[Figure]:
    started: list[float] = []
    first: list[float] = []
    async with box_of(mesh):  # what is measured has a connection already
        before = len(_lines(log))
        for _ in range(CREATES):
            box = box_of(mesh)
            started.append(await timed(box.start()))
            first.append(await timed(_answered(box)))
            await box.close()
    lines = _lines(log)[before:]
    return [
        Figure("one cold create, to the box", spread(started)),
        Figure("  of it in the mesh", _median(lines, event="an RPC ended", method=_CONNECT)),
        *[Figure(f"    store: {name}", _median(lines, event="the store answered", script=name)) for name in ON_THE_WAY],
        *[Figure(f"    driver: until {what}", _median(lines, step=step)) for step, what in BIRTH.items()],
        Figure("its first call", spread(first)),
        Figure("  link to its agent (begun by the create)", _median(lines, event="a link is open")),
    ]


def _lines(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_bytes().splitlines() if line.startswith(b"{")]


_CONNECT = "sandmesh.api.session.v1.SessionService/ConnectSession"


async def _answered(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell("1+1")


def _median(lines: Sequence[Mapping[str, object]], **wanted: str) -> str:
    """Return the median of the seconds that lines with these words tell."""
    found = [line["seconds"] for line in lines if all(line.get(key) == value for key, value in wanted.items())]
    seconds = [each for each in found if isinstance(each, float)]
    return f"p50 {statistics.median(seconds) * 1e3:.2f} ms" if seconds else "none"
