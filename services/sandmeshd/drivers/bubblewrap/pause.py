"""Pauses sandboxes: every process stands still, keeps its memory, and still ends when it is killed.

A sandbox with a control group of version 2 is frozen by it. Any other is stopped by SIGSTOP from outside: nothing in
it can continue what is stopped, since all of it is. The freezer of version 1 is not used: what it froze does not end
by SIGKILL, so that a driver that was killed would leave processes that nothing ends.

The folder says that the sandbox is paused before anything is stopped, and which processes its own user had stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import WrongState
from sandmeshd.drivers.bubblewrap.pause_memory import give_back, measure, outcome
from sandmeshd.drivers.node.processes import found
from sandmeshd.drivers.node.records import Folder

FREEZE = "cgroup.freeze"
PATIENCE_SECONDS = 5.0
POLL_SECONDS = 0.005

_STILL = frozenset("TtZXx")
"""States that a process leaves only by a signal, if at all (proc_pid_stat(5))."""
_ENDED = frozenset("ZXx")
_IN_SYSTEM = frozenset("D")
"""Waits in the system, as a process does whose child shares its memory (vfork(2)): it stops before it runs on."""
_SYSTEM_SECONDS = 0.3
"""How long such a wait may last before it counts as standing still."""
_MOST_NAMED = 8


def is_paused(folder: Folder) -> bool:
    """Return whether a sandbox is paused, or was being paused when its driver was killed."""
    return _mark(folder).exists()


async def pause(folder: Folder) -> None:
    """Stop every process of a sandbox; one that is paused stays so.

    Raises:
        WrongState: Some do not stop; all of them go on.
    """
    if not is_paused(folder):
        _write_mark(folder)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _stop(folder)
    except TimeoutError:
        moving = [pid for pid in _processes(folder) if not _states(pid) <= _STILL]
        named = ", ".join(f"{pid} ({_command(pid)})" for pid in moving[:_MOST_NAMED]) or "its control group"
        await resume(folder)
        message = (
            f"{folder.sandbox_id} is not paused, as {named} did not stand still in {PATIENCE_SECONDS:g} s: try again"
        )
        raise WrongState(message, {"state": "READY"}) from None


async def pause_files(folder: Folder) -> None:
    """Pause a sandbox, then end what user code runs in it.

    Only what starts user code's processes is left: the first process of each PID namespace, and those of the outermost.

    Raises:
        WrongState: Some do not stop; all of them go on.
    """
    await pause(folder)
    # Nothing moves, so the list is complete; a process that stands still ends by SIGKILL all the same.
    init, *others = _processes(folder, whole=False) or [0]
    depth = len(_numbers(init))
    ending = [pid for pid in others if len(numbers := _numbers(pid)) > depth and numbers[-1] != "1"]
    for pid in ending:
        _send(pid, signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(_end(ending), PATIENCE_SECONDS)


async def _end(processes: list[int]) -> None:
    while True:
        # Their parents stand still: they stay as zombies, without memory.
        if all(_states(pid) <= _ENDED for pid in processes):
            return
        await asyncio.sleep(POLL_SECONDS)


async def pause_and_give_back(folder: Folder, ends: bool) -> sandbox_pb2.PauseMemory:
    """Pause a sandbox, with files only where it `ends` processes, and return memory to the machine.

    Raises:
        WrongState: Some processes do not stop; all of them go on.
    """
    groups = [Path(path) for path in folder.group_paths()]
    before = measure(groups, _processes(folder, whole=False))
    await (pause_files if ends else pause)(folder)
    note = await give_back(groups)
    if ends:
        note = f"its processes ended; {note}"
    return outcome(before, measure(groups, _processes(folder, whole=False)), note)


def _numbers(pid: int) -> list[str]:
    """Return a process's numbers in its PID namespaces, the outermost first; none where it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return line.split()[1:]
    return []


async def resume(folder: Folder) -> None:
    """Resume a paused sandbox, but for what its own user had stopped; one that runs stays as it is."""
    mark = _mark(folder)
    if not mark.exists():
        return
    for group in _freezable_groups(folder):
        (group / FREEZE).write_text("0")
    kept = _stopped_before(mark)
    # Parents last: a shell whose children were continued before it never learns that they were stopped.
    # All of them stand still, so that none can be missing.
    for pid in reversed(_processes(folder, whole=False)):
        if pid not in kept:
            _send(pid, signal.SIGCONT)
    mark.unlink()


def _stopped_before(mark: Path) -> set[int]:
    """Return what the sandbox's own user had stopped; a damaged mark says nothing, so that all is continued."""
    try:
        return set(json.loads(mark.read_text()))
    except (ValueError, TypeError, RecursionError):
        return set()


def _mark(folder: Folder) -> Path:
    return folder.root / "paused"


def _write_mark(folder: Folder) -> None:
    stopped = [pid for pid in _processes(folder) if _states(pid) & set("Tt")]
    written = folder.root / "paused.new"
    written.write_text(json.dumps(stopped))
    written.replace(_mark(folder))


async def _stop(folder: Folder) -> None:
    groups = _freezable_groups(folder)
    for group in groups:
        await _freeze(group)
    if not groups:
        await _stop_by_signal(folder)


async def _freeze(group: Path) -> None:
    (group / FREEZE).write_text("1")
    while True:
        if "frozen 1" in (group / "cgroup.events").read_text():
            return
        await asyncio.sleep(POLL_SECONDS)


async def _stop_by_signal(folder: Folder) -> None:
    before: list[int] = []
    whole = False
    loop = asyncio.get_running_loop()
    began = loop.time()
    # A process may fork until it has stopped: the list is complete once all on it stood still while it was made.
    while True:
        # Those that the system lists while processes end may not be all: the last list is of the whole machine.
        listed = _processes(folder, whole=whole)
        still = _STILL | _IN_SYSTEM if loop.time() - began > _SYSTEM_SECONDS else _STILL
        moving = [pid for pid in listed if not _states(pid) <= still]
        if not moving and listed == before:
            if whole:
                return
            whole = True
        for pid in moving:
            _send(pid, signal.SIGSTOP)
        before = listed
        await asyncio.sleep(POLL_SECONDS)


def _freezable_groups(folder: Folder) -> list[Path]:
    """Return the sandbox's groups that can freeze it as a whole."""
    with suppress(FileNotFoundError):
        return [path for line in folder.groups.read_text().splitlines() if ((path := Path(line)) / FREEZE).exists()]
    return []


def _processes(folder: Folder, *, whole: bool = True) -> list[int]:
    """Return the processes of a sandbox as the host numbers them, PID 1 first, each before its children.

    To look at the `whole` machine takes the longer the more sandboxes it has. Otherwise the system is asked for the
    children of each, which is complete only where none of them ends meanwhile.
    """
    with found(folder) as living:
        init = folder.status_value("child-pid")
        if living is None or init is None:
            return []
        children: dict[int, list[int]] = {}
        whole = whole or not Path(f"/proc/{init}/task/{init}/children").exists()
        for pid, parent in _all_processes() if whole else ():
            children.setdefault(parent, []).append(pid)
        processes = [init]
        for pid in processes:
            processes.extend(sorted(children.get(pid, ()) if whole else _children(pid)))
        return processes


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in os.scandir(f"/proc/{pid}/task"):
            with suppress(OSError):
                yield from map(int, Path(task.path, "children").read_text().split())


def _all_processes() -> Iterator[tuple[int, int]]:
    """Yield each process of the machine with its parent."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                yield int(entry.name), int(_fields(Path(entry.path) / "stat")[1])


def _states(pid: int) -> set[str]:
    """Return the states of a process's threads, none where it has ended."""
    states: set[str] = set()
    with suppress(OSError):
        for task in os.scandir(f"/proc/{pid}/task"):
            with suppress(OSError):
                states.add(_fields(Path(task.path) / "stat")[0])
    return states


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return "ended"


def _fields(stat: Path) -> list[str]:
    return stat.read_text().rpartition(")")[2].split()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
