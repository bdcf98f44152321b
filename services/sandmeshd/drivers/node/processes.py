"""Processes by pidfd, waited for without threads."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sandmesh.errors import InternalError
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.processes.child_process import readable

Made = TypeVar("Made")

POLL_SECONDS = 0.005
SLOWEST_POLL_SECONDS = 0.1
ZYGOTE = "sandmesh-zygote"
MONITORS = ("bwrap", "sandmesh-root", ZYGOTE)
"""The names of what notes how a sandbox ended."""


async def to_the_end(work: Coroutine[Any, Any, Made]) -> Made:
    """Run something that must not stop half-way and return its result; a cancellation is raised when it is done."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


@dataclass(frozen=True)
class Sandboxed:
    """The living processes of a sandbox that the host needs to know, as pidfds: PID 1, and who notes its end."""

    folder: Folder
    init: int
    monitor: int | None
    """The sandbox's bwrap, which ends with it, or the zygote that forked it and may live on."""
    lives_on: bool = False
    """Whether the monitor is such a zygote."""

    async def ended(self, patience: float = 3.0) -> None:
        """Return when PID 1 and all below it ended, and how was noted, or cannot be or took too long."""
        await readable(self.init)
        if self.monitor is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._noted(self.monitor)
                    if not self.lives_on:
                        # It notes the end right before its own, and would stay in the list of processes unreaped.
                        await readable(self.monitor)
            reap(self.monitor)

    async def _noted(self, monitor: int) -> None:
        pause = POLL_SECONDS
        while self.folder.status_value("exit-code") is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await readable(monitor)
                    return
            # Where many end together, looking after each takes the processor time that their ends need.
            pause = min(2 * pause, SLOWEST_POLL_SECONDS)

    def kill(self) -> None:
        """End every process of the sandbox."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.init, signal.SIGKILL)

    def close(self) -> None:
        """Close the pidfds."""
        os.close(self.init)
        if self.monitor is not None:
            os.close(self.monitor)


def reap(pidfd: int) -> None:
    """Reap a process that ended and is a child of this one."""
    # A sandbox's monitor is our child only where this process started it.
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)


def find(folder: Folder) -> Sandboxed | None:
    """Return a sandbox's processes, None where it does not run or bwrap has not named its child yet."""
    pid = folder.status_value("child-pid")
    if pid is None:
        return None
    try:
        init = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # The lock tells that the pid was not used again: while it is held, PID 1 lives.
    if not folder.is_alive():
        os.close(init)
        return None
    return Sandboxed(folder, init, *_monitor(pid))


def _monitor(pid: int) -> tuple[int | None, bool]:
    """Return the pidfd of PID 1's monitor, and whether that lives on when its sandbox ends."""
    try:
        parent = _parent_pid(pid)
        pidfd = os.pidfd_open(parent)
    except (FileNotFoundError, ProcessLookupError, ValueError, OSError):
        return None, False
    # Without its monitor PID 1 belongs to the machine's init, or to what takes its place.
    name = _name_of_monitor(parent, pid)
    if name:
        return pidfd, name == ZYGOTE
    os.close(pidfd)
    return None, False


def _parent_pid(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _name_of_monitor(parent: int, pid: int) -> str:
    try:
        name = Path(f"/proc/{parent}/comm").read_text().strip()
        return name if name in MONITORS and _parent_pid(pid) == parent else ""
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextmanager
def found(folder: Folder) -> Generator[Sandboxed | None]:
    """Yield a sandbox's processes and close them afterwards."""
    processes = find(folder)
    try:
        yield processes
    finally:
        if processes is not None:
            processes.close()


async def end(folder: Folder, patience: float = 4.0) -> None:
    """End a sandbox's processes; return when none is left.

    Raises:
        InternalError: They did not end within `patience` seconds.
    """
    try:
        async with asyncio.timeout(patience):
            while folder.is_alive():
                with found(folder) as processes:
                    if processes is not None:
                        processes.kill()
                        await processes.ended()
                        continue
                # bwrap names its child before it lets it run, but there is no event for it.
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise InternalError(f"the processes of {folder.sandbox_id} do not end", changed=True) from None
