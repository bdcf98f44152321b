"""`python -m benchmarks.operations`: what a create and a cell ask of the kernel and of the store, as counts.

strace counts the system calls of all processes of a mesh, and the store its commands, while sandboxes are created,
answer `1+1` and are released one after another, and while one of them runs cells. Counts hardly change with the speed
of a machine and with other work on it, so that a test compares them with those in `operations.json` beside this
module: a line that grows by more than 3 % fails it. `--write` replaces that file, after a change that is meant.

What waits, wakes, reads and writes is left out, since how often it is called depends on timing; so are commands of the
store that an idle mesh runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from redis.asyncio import Redis

from benchmarks.figures import Figure, box_of, first_result
from benchmarks.meshes import RunningMesh, processes_below, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync
from sandmeshd.mesh.settings import MeshSettings

ROUNDS: Final = 2
"""Of each kind the smallest count is taken: what a mesh does now and then is in some rounds only."""
CREATES: Final = 15
CELLS: Final = 40
WARM: Final = 6
MOST_GROWTH: Final = 0.03
POLLED: Final[Mapping[str, float]] = {"files looked up": 0.08}
"""The growth that is allowed where loops that wait for a file look it up, so that counts vary with timing."""
LEAST_GROWTH: Final = 0.25
"""Below which nothing has been added to what a create or a cell does: a count of one adds at least 1."""
RECORDED: Final = Path(__file__).with_name("operations.json")
SETTLE_SECONDS: Final = 1.0
"""How long a node's folders stay as they are once released sandboxes are removed and spare ones prepared."""
MOST_SETTLE_SECONDS: Final = 30.0
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "processes started": ("clone", "clone3", "fork", "vfork"),
    "programs started": ("execve", "execveat"),
    "namespaces made or entered": ("unshare", "setns"),
    "mounts": ("mount", "umount2", "pivot_root", "move_mount", "open_tree", "mount_setattr", "fsopen", "fsmount"),
    "files opened": ("open", "openat", "openat2", "creat"),
    "files looked up": ("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink"),
    "directories read": ("getdents64",),
    "files and directories made": ("mkdir", "mkdirat", "symlink", "symlinkat", "link", "linkat", "mknod", "mknodat"),
    "files and directories removed": ("unlink", "unlinkat", "rmdir"),
    "files renamed": ("rename", "renameat", "renameat2"),
    "sockets and pipes": ("socket", "socketpair", "connect", "accept4", "bind", "listen", "pipe2", "eventfd2"),
}
"""System calls that are counted, by what they do."""
_IDLE_COMMANDS: Final = frozenset(
    {
        *("eval", "evalsha", "expire", "get", "hgetall", "hkeys", "hlen", "hmget", "info", "ping", "set", "smembers"),
        *("sscan", "time", "xread", "zadd", "zcard", "zrange", "zrangebyscore", "zremrangebyscore"),
    }
)
"""Commands that services send, or scripts run, in an idle mesh."""

Operations = dict[str, dict[str, float]]
"""By "create" and "cell", the count of each kind for one of them."""


def recorded() -> Operations:
    """Return the counts that are recorded for this version of Python, none where there are none."""
    found: dict[str, Operations] = json.loads(RECORDED.read_text())
    return found.get(_version(), {})


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


async def count() -> Operations:
    """Return the counts on a mesh made for it."""
    async with running_mesh() as mesh:
        await _creates(mesh, WARM)
        created = [await _counted(mesh, lambda: _creates(mesh, CREATES), CREATES) for _ in range(ROUNDS)]
        async with box_of(mesh) as box:
            await _cells(box, CELLS)
            called = [await _counted(mesh, lambda: _cells(box, CELLS), CELLS) for _ in range(ROUNDS)]
    return {"create": _least(created), "cell": _least(called)}


def _least(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: min(counted[kind] for counted in rounds) for kind in rounds[0]}


def grown(before: Operations, now: Operations) -> list[str]:
    """Return a line for each count that is more than 3 % above what it was."""
    found: list[str] = []
    for job, kinds in now.items():
        for kind, counted in kinds.items():
            recorded_count = before.get(job, {}).get(kind, 0.0)
            if counted > recorded_count * (1 + POLLED.get(kind, MOST_GROWTH)) + LEAST_GROWTH:
                found.append(f"{kind} of a {job}: {recorded_count:g} before, {counted:g} now")
    return found


async def _creates(mesh: RunningMesh, number: int) -> None:
    for _ in range(number):
        async with box_of(mesh) as box:
            await first_result(box)


async def _cells(box: BaseSandboxAsync, number: int) -> None:
    for _ in range(number):
        result = await box.run_ipython_cell("1+1")
        if result.text.strip() != "2":
            raise RuntimeError(f"the sandbox answered {result!r}")


async def _settled(mesh: RunningMesh) -> None:
    """Wait until the work that follows a release has been done, on a busy machine as well."""
    folder = MeshSettings(mesh_id=mesh.mesh_id).paths.node_state / "sandboxes"
    seen, since, end = set[str](), time.monotonic(), time.monotonic() + MOST_SETTLE_SECONDS
    while time.monotonic() < min(since + SETTLE_SECONDS, end):
        await asyncio.sleep(SETTLE_SECONDS / 10)
        now = {entry.name for entry in folder.iterdir()}
        if now != seen or any(name.startswith(".gone-") and not name.startswith(".gone-spare") for name in now):
            seen, since = now, time.monotonic()


async def _counted(mesh: RunningMesh, work: Callable[[], Awaitable[None]], number: int) -> dict[str, float]:
    await _settled(mesh)
    async with _store_of(mesh) as store, _traced(mesh) as calls:
        before = await _commands(store)
        await work()
        await _settled(mesh)
        sent = await _commands(store) - before
    found = {kind: sum(calls[name] for name in names) for kind, names in KINDS.items()}
    found["store commands"] = sum(times for name, times in sent.items() if name not in _IDLE_COMMANDS)
    return {kind: round(times / number, 2) for kind, times in found.items()}


@asynccontextmanager
async def _traced(mesh: RunningMesh) -> AsyncGenerator[Counter[str]]:
    """Count the system calls of a mesh; the counter is filled when the block ends."""
    strace = shutil.which("strace")
    if strace is None:
        raise RuntimeError("counting system calls needs strace: apt-get install strace")
    found: Counter[str] = Counter()
    with tempfile.NamedTemporaryFile(mode="r", suffix=".strace") as report:
        pids = [argument for pid in (mesh.pid, *processes_below(mesh.pid)) for argument in ("-p", str(pid))]
        tracer = await asyncio.create_subprocess_exec(
            *(strace, "-f", "-c", "-U", "name,calls", "-o", report.name, *pids), stderr=asyncio.subprocess.PIPE
        )
        try:
            await _attached(tracer, len(pids) // 2)
            yield found
        finally:
            if tracer.returncode is None:
                tracer.send_signal(signal.SIGINT)
            await tracer.communicate()
        found.update(_calls(report.read()))


async def _attached(tracer: asyncio.subprocess.Process, processes: int) -> None:
    """Wait until strace has said of each process that it is attached."""
    if tracer.stderr is None:
        raise RuntimeError("strace's messages are not read")
    said: list[str] = []
    while sum("attached" in line for line in said) < processes:
        line = (await asyncio.wait_for(tracer.stderr.readline(), 30)).decode()
        if not line:
            raise RuntimeError("strace could not attach to the mesh: " + "".join(said).strip())
        said.append(line)


def _calls(report: str) -> dict[str, int]:
    lines = [line.split() for line in report.splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit() and line[0] != "total"}


@asynccontextmanager
async def _store_of(mesh: RunningMesh) -> AsyncGenerator[Redis]:
    """Connect to the store that a mesh has as a process below it."""
    sockets = filter(None, map(_store_socket, processes_below(mesh.pid)))
    async with Redis(unix_socket_path=next(sockets)) as store:
        yield store


def _store_socket(pid: int) -> str:
    """Return the socket of a process that is a store, an empty text for any other."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return ""
    found = re.match(rb"\S*valkey-server unixsocket:([^\0 ]+)", command)
    return os.fsdecode(found[1]) if found else ""


async def _commands(store: Redis) -> Counter[str]:
    found: dict[str, dict[str, int]] = await store.info("commandstats")  # pyright: ignore[reportUnknownMemberType]
    return Counter({name.removeprefix("cmdstat_"): counted["calls"] for name, counted in found.items()})


def main() -> None:
    """Count, and print or record."""
    parser = arguments("benchmarks.operations", __doc__)
    parser.add_argument("--write", action="store_true", help=f"replace this Python's counts in {RECORDED.name}")
    chosen = parser.parse_args()
    now, before = asyncio.run(count()), recorded()
    if chosen.write:
        kept = json.loads(RECORDED.read_text()) | {_version(): now}
        RECORDED.write_text(json.dumps(kept, indent=2) + "\n")
    rows = [
        Figure(f"{kind} of a {job}", f"{times:g}", f"recorded: {before.get(job, {}).get(kind, 0.0):g}")
        for job, kinds in now.items()
        for kind, times in kinds.items()
    ]
    show(rows, machine(), as_markdown=chosen.markdown)


if __name__ == "__main__":
    main()
