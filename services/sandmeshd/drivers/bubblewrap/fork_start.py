"""Starts a sandbox the fork way: a zygote that has all imported forks it, and gives it namespaces of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import structlog

from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.bubblewrap.arguments import FOLDERS_OF_ALL, SOCKETS, SOCKETS_OF_ALL, Mounts
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group, Groups
from sandmeshd.drivers.bubblewrap.exec_start import (
    Pipe,
    Plan,
    failed,
    make_folder,
    open_doors,
    open_events,
    open_files,
    open_pipe,
    parsed,
    written,
)
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.zygotes import CannotFork, Zygote, ZygoteGone, Zygotes
from sandmeshd.drivers.node.agent_config import BASIC, WORKSPACE
from sandmeshd.drivers.node.processes import end, to_the_end
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.child_process import readable
from sandmeshd.templates import Template

log = structlog.get_logger()

AT_ONCE = 16
"""Sandboxes that are started at one moment: more would only wait for processors, holding descriptors."""

READ_BYTES = 1 << 16

EARLY = ("LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "HOME", "IPYTHON", "JUPYTER", "PATH", "VIRTUAL_ENV")
"""How variables' names start that an interpreter or what it imports reads once: a zygote has read them by then."""


def shared_variables(template: Template) -> dict[str, str]:
    """Give the variables that a template's zygote has: others come with each sandbox, so that templates share one."""
    of_python = {**BASIC, **template.python.variables}
    early = {name: value for name, value in template.variables.items() if name.startswith(EARLY)}
    return {**of_python, **early}


def needs_exec(plan: Plan) -> str:
    """Say what of a sandbox only a start of its own can give; nothing where a fork will do."""
    if plan.mounts.workspace_fd is not None:
        # A zygote sees no more of the host than all its sandboxes may.
        return "a directory of the host as its workspace"
    stated = plan.config.environment
    changed = [name for name in stated if name.startswith(EARLY) and stated[name] != plan.variables.get(name)]
    return ", ".join(f"the environment variable {name}" for name in sorted(changed))


class ForkStarter:
    """Starts sandboxes of one driver, each forked from the zygote of its kind."""

    def __init__(self, settings: BubblewrapSettings, zygotes: Zygotes, groups: Groups) -> None:
        self._settings = settings
        self._groups = groups
        self._zygotes = zygotes
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def start(self, plan: Plan) -> int | None:
        """Start a sandbox and return when its agent listens: see Way.

        Raises:
            CannotFork: No zygote can be started, or the kernel refuses what forking needs.
        """
        zygote = await self._zygotes.of(plan.mounts, plan.variables)
        async with self._turns:
            make_folder(plan, self._settings)
            group = self._groups.make(plan.folder, plan.wanted)
            async with _abandoned(plan.folder):
                return await self._start(plan, zygote, group)

    async def _start(self, plan: Plan, zygote: Zygote, group: Group | None) -> int | None:
        line = written(plan.config)
        with ExitStack() as stack:
            config = stack.enter_context(open_pipe())
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(ours)
            with theirs:
                _ask(plan, zygote, group, config.reader, theirs.fileno())
            config.close_reader()
            await self._attend(Birth(plan.folder, group, ours, config, line), plan.folder)
            return config.detach_writer() if self._settings.ends_with_driver else None

    async def _attend(self, birth: Birth, folder: Folder) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await birth.attend()
        except TimeoutError:
            raise failed(folder, f"its agent did not listen within {self._settings.start_timeout:g} s") from None

    async def stand_by(self, mounts: Mounts, variables: Mapping[str, str]) -> None:
        """Have a zygote for such sandboxes.

        Raises:
            CannotFork: None can be started.
        """
        await self._zygotes.of(mounts, variables)

    async def close(self) -> None:
        """Let the zygotes go; sandboxes live on."""
        await self._zygotes.close()


class Birth:
    """What a sandbox says while it is made, and what it is answered."""

    def __init__(self, folder: Folder, group: Group | None, socket_: socket.socket, config: Pipe, line: bytes) -> None:
        socket_.setblocking(False)
        self._folder = folder
        self._group = group
        self._socket = socket_
        self._config = config
        self._line = line
        self._began = time.monotonic()

    async def attend(self) -> None:
        """Return when the agent listens.

        Raises:
            ZygoteGone: The zygote or what it forked was killed.
        """
        try:
            while not await self._heard():
                pass
        except (ConnectionError, ProcessLookupError):
            # It was killed before it read what it was told, or while it was looked at.
            raise _killed() from None

    async def _heard(self) -> bool:
        await readable(self._socket.fileno())
        data, fds, _, _ = socket.recv_fds(self._socket, READ_BYTES, 1)
        try:
            return self._take(parsed(data), fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _take(self, said: dict[str, object], fds: list[int]) -> bool:
        if "init" in said:
            pid = _host_pid(fds[0])
            self._note(pid)
            self._place(pid)
            self._config.fill(self._line)
        elif "user" in said:
            # Nothing of a user has run yet: that process, and all that it will fork, wait for the answer.
            self._place(_host_pid(fds[0]))
            with open_doors(self._group) as doors:
                socket.send_fds(self._socket, [b"go"], doors)
        elif "ready" not in said:
            self._fail(said)
        seconds = round(time.monotonic() - self._began, 6)
        log.debug("a sandbox is being born", sandbox_id=self._folder.sandbox_id, said=min(said), seconds=seconds)
        return "ready" in said

    def _place(self, pid: int) -> None:
        if self._group is not None:
            self._group.join(pid)

    def _note(self, pid: int) -> None:
        with self._folder.status.open("a") as status:
            status.write(json.dumps({"child-pid": pid}) + "\n")

    def _fail(self, said: dict[str, object]) -> None:
        if not said:
            raise _killed()
        if "setup" in said:
            raise CannotFork(str(said["error"]))
        raise failed(self._folder, str(said.get("error") or "its agent ended at once"))


def _killed() -> ZygoteGone:
    return ZygoteGone("the zygote or what it forked was killed")


def _host_pid(pidfd: int) -> int:
    """Give the pid that a process has here. What ended has none."""
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    pid = next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
    if pid <= 0:
        raise SandboxStartFailed("the sandbox ended as it was made", {"detail": f"pid {pid}"})
    return pid


def _ask(plan: Plan, zygote: Zygote, group: Group | None, config: int, driver: int) -> None:
    with ExitStack() as stack:
        lock, status, output = open_files(plan.folder, stack)
        events = stack.enter_context(open_events(group)) if group else None
        fds = [lock, status, output, config, driver]
        zygote.ask(_own(plan), fds if events is None else [*fds, events])


def _own(plan: Plan) -> dict[str, object]:
    """Give what a sandbox mounts of its own: directories of the host, file systems in memory."""
    folder, size, scratch = plan.folder, plan.mounts.disk_bytes, plan.mounts.scratch_bytes
    sockets = (f"{SOCKETS_OF_ALL}/{folder.sockets.name}", SOCKETS)
    if size:
        return {"binds": [sockets], "memory": [(WORKSPACE, "0700", size)], "scratch": scratch}
    workspace = (f"{FOLDERS_OF_ALL}/{folder.root.name}/{folder.workspace.name}", WORKSPACE)
    return {"binds": [workspace, sockets], "memory": [], "scratch": scratch}


@asynccontextmanager
async def _abandoned(folder: Folder) -> AsyncGenerator[None]:
    """End a sandbox when the block fails or is cancelled: what is not named yet ends as its sockets close."""
    try:
        yield
    except BaseException:
        await to_the_end(end(folder))
        raise
