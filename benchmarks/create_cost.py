"""`python -m benchmarks.create_cost [COUNT]`: the processor time of a cold create, its first cell and its release.

COUNT sandboxes (200) are created, one after another, answer `1+1` and are released. What each process of the mesh used
meanwhile is read before and after, with what its ended children used; so is what the client used. Processor time
changes much less with other work on the machine than elapsed time does. Beside it, in the same run: a fork into seven
namespaces, and starting and ending an empty Python, each with all that the kernel does for it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, box_of, first_result
from benchmarks.forking import once
from benchmarks.meshes import RunningMesh, processes_below, running_mesh
from benchmarks.report import arguments, machine, show

COUNT: Final = 200
WARM: Final = 10
"""Creates before the first that counts."""
SETTLE_SECONDS: Final = 2.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
PARTS: Final = {
    "client": "client (SDK)",
    "services": "gateway, broker, allocator and driver (one process)",
    "store": "store",
    "agents": "zygote of agents, and the agents that it forked",
    "userland": "template process, and user code's processes",
    "other": "other processes",
}


@dataclass(frozen=True)
class Spent:
    """Seconds of processor time in user code and in the kernel."""

    user: float
    system: float

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.user + other.user, self.system + other.system)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.user - other.user, self.system - other.system)

    def each(self, count: int) -> str:
        """Return it for each of `count`, in milliseconds."""
        user, system = self.user / count * 1e3, self.system / count * 1e3
        return f"{user + system:.2f} ms ({user:.2f} user, {system:.2f} system)"


NOTHING: Final = Spent(0.0, 0.0)


async def create_cost(count: int) -> list[Figure]:
    """Return the table: the sum, each part of the mesh, and what to compare it with."""
    async with running_mesh() as mesh:
        await _cycles(mesh, WARM)
        before, own = await _settled(mesh), _own()
        await _cycles(mesh, count)
        client = _own() - own
        after = await _settled(mesh)
    parts = {name: after.get(name, NOTHING) - before.get(name, NOTHING) for name in PARTS}
    parts["client"] = client
    total = sum(parts.values(), NOTHING)
    bare, python = _measured(lambda: _forks(count)), _measured(lambda: _empty_pythons(count))
    times = (total.user + total.system) / (python.user + python.system)
    return [
        Figure(f"a create, its first cell and its release, each of {count}", total.each(count), "10 ms"),
        *[Figure(f"  {PARTS[name]}", part.each(count)) for name, part in parts.items()],
        Figure("a fork into seven namespaces", bare.each(count)),
        Figure("starting and ending an empty Python", python.each(count)),
        Figure("  the first as a multiple of it", f"{times:.2f}", "0.33"),
    ]


async def _cycles(mesh: RunningMesh, count: int) -> None:
    for _ in range(count):
        async with box_of(mesh) as box:
            await first_result(box)


async def _settled(mesh: RunningMesh) -> dict[str, Spent]:
    """Return what each part used so far, once what follows a release is done."""
    await asyncio.sleep(SETTLE_SECONDS)
    found: dict[str, Spent] = {}
    for pid in (mesh.pid, *processes_below(mesh.pid)):
        part = _part(mesh, pid)
        found[part] = found.get(part, NOTHING) + _of(pid)
    return found


def _of(pid: int) -> Spent:
    """Return what a process and its ended children used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return NOTHING
    user, system, ended_user, ended_system = (int(field) / TICKS for field in fields[11:15])
    return Spent(user + ended_user, system + ended_system)


def _part(mesh: RunningMesh, pid: int) -> str:
    if pid == mesh.pid:
        return "services"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "other"
    marks = {"server": "store", "--zygote-fd": "agents", "template_process": "userland"}
    return next((part for mark, part in marks.items() if mark in command), "other")


def _own() -> Spent:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Spent(used.ru_utime, used.ru_stime)


def _measured(work: Callable[[], None]) -> Spent:
    """Return what `work` used in this process and in children that ended."""
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    work()
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    pairs = list(zip(before, after, strict=True))
    user = sum(end.ru_utime - begin.ru_utime for begin, end in pairs)
    return Spent(user, sum(end.ru_stime - begin.ru_stime for begin, end in pairs))


def _forks(count: int) -> None:
    libc = ctypes.CDLL(None)
    for _ in range(count):
        once(libc)


def _empty_pythons(count: int) -> None:
    for _ in range(count):
        subprocess.run([sys.executable, "-I", "-c", ""], check=True)


def main() -> None:
    """Measure and print."""
    parser = arguments("benchmarks.create_cost", __doc__)
    parser.add_argument("count", nargs="?", type=int, default=COUNT, help="how many sandboxes", metavar="COUNT")
    chosen = parser.parse_args()
    if chosen.count < 1:
        parser.error("COUNT is at least 1")
    show(asyncio.run(create_cost(chosen.count)), machine(), as_markdown=chosen.markdown)


if __name__ == "__main__":
    main()
