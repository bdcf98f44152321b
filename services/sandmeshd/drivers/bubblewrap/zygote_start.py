"""The start of a sandbox by a zygote, which has everything imported and gives it namespaces of its own."""

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
    open_cgroup_fds,
    open_events,
    open_files,
    open_pipe,
    parse,
)
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.zygotes import SpawnFailed, Zygote, ZygoteGone, Zygotes
from sandmeshd.drivers.node.agent_config import BASIC, WORKSPACE, encode_config
from sandmeshd.drivers.node.processes import end, to_the_end
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.child_process import readable
from sandmeshd.templates import Template

log = structlog.get_logger()

MAX_CONCURRENT = 16
"""The most sandboxes that are started at a time: more would only wait for processors, holding descriptors."""

READ_BYTES = 1 << 16

EARLY = ("LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "HOME", "IPYTHON", "JUPYTER", "PATH", "VIRTUAL_ENV")
"""Prefixes of variables that an interpreter or what it imports reads once: a zygote has read them already."""


def shared_variables(template: Template) -> dict[str, str]:
    """Return the variables of a template's zygote; the others are each sandbox's, so that templates share a zygote."""
    of_python = {**BASIC, **template.python.variables}
    early = {name: value for name, value in template.variables.items() if name.startswith(EARLY)}
    return {**of_python, **early}


def needs_exec(plan: Plan) -> str:
    """Return what of a sandbox requires a bwrap of its own; empty if a zygote can spawn it."""
    if plan.mounts.workspace_fd is not None:
        # A zygote sees only what all of its sandboxes may see of the host.
        return "a directory of the host as its workspace"
    variables = plan.config.environment
    changed = [name for name in variables if name.startswith(EARLY) and variables[name] != plan.variables.get(name)]
    return ", ".join(f"the environment variable {name}" for name in sorted(changed))


class ZygoteStarter:
    """Starts the sandboxes of one driver, each by the zygote for its mounts and variables."""

    def __init__(self, settings: BubblewrapSettings, zygotes: Zygotes, groups: Groups) -> None:
        self._settings = settings
        self._groups = groups
        self._zygotes = zygotes
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def start(self, plan: Plan) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`.

        Raises:
            SpawnFailed: No zygote can be started, or the kernel refuses what spawning requires.
        """
        zygote = await self._zygotes.of(plan.mounts, plan.variables)
        async with self._slots:
            make_folder(plan, self._settings)
            group = self._groups.make(plan.folder, plan.limits)
            async with _ended_on_error(plan.folder):
                return await self._start(plan, zygote, group)

    async def _start(self, plan: Plan, zygote: Zygote, group: Group | None) -> int | None:
        line = encode_config(plan.config)
        with ExitStack() as stack:
            config = stack.enter_context(open_pipe())
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(ours)
            with theirs:
                _request(plan, zygote, group, config.reader, theirs.fileno())
            config.close_reader()
            await self._wait_for_agent(Spawn(plan.folder, group, ours, config, line), plan.folder)
            return config.detach_writer() if self._settings.ends_with_driver else None

    async def _wait_for_agent(self, spawn: Spawn, folder: Folder) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await spawn.run()
        except TimeoutError:
            raise failed(folder, f"its agent did not listen within {self._settings.start_timeout:g} s") from None

    async def prewarm(self, mounts: Mounts, variables: Mapping[str, str]) -> None:
        """Start the zygote of such sandboxes, unless it runs.

        Raises:
            SpawnFailed: It cannot be started.
        """
        await self._zygotes.of(mounts, variables)

    async def close(self) -> None:
        """Release the zygotes; sandboxes live on."""
        await self._zygotes.close()


class Spawn:
    """The exchange of messages with a sandbox that is being spawned."""

    def __init__(self, folder: Folder, group: Group | None, socket_: socket.socket, config: Pipe, line: bytes) -> None:
        socket_.setblocking(False)
        self._folder = folder
        self._group = group
        self._socket = socket_
        self._config = config
        self._line = line
        self._start_time = time.monotonic()

    async def run(self) -> None:
        """Return when the agent listens.

        Raises:
            ZygoteGone: The zygote or what it forked was killed.
        """
        try:
            while not await self._receive():
                pass
        except (ConnectionError, ProcessLookupError):
            # It was killed before it read its configuration, or between two reads of /proc.
            raise _killed() from None

    async def _receive(self) -> bool:
        await readable(self._socket.fileno())
        data, fds, _, _ = socket.recv_fds(self._socket, READ_BYTES, 1)
        try:
            return self._handle(parse(data), fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _handle(self, message: dict[str, object], fds: list[int]) -> bool:
        if "init" in message:
            pid = _host_pid(fds[0])
            self._write_status(pid)
            self._join(pid)
            self._config.fill(self._line)
        elif "user" in message:
            # No user code has run yet: that process, and all that it will fork, wait for the response.
            self._join(_host_pid(fds[0]))
            with open_cgroup_fds(self._group) as cgroup_fds:
                socket.send_fds(self._socket, [b"go"], cgroup_fds)
        elif "ready" not in message:
            self._fail(message)
        seconds = round(time.monotonic() - self._start_time, 6)
        log.debug("a sandbox is being spawned", sandbox_id=self._folder.sandbox_id, step=min(message), seconds=seconds)
        return "ready" in message

    def _join(self, pid: int) -> None:
        if self._group is not None:
            self._group.join(pid)

    def _write_status(self, pid: int) -> None:
        with self._folder.status.open("a") as status:
            status.write(json.dumps({"child-pid": pid}) + "\n")

    def _fail(self, message: dict[str, object]) -> None:
        if not message:
            raise _killed()
        if "setup" in message:
            raise SpawnFailed(str(message["error"]))
        raise failed(self._folder, str(message.get("error") or "its agent ended at once"))


def _killed() -> ZygoteGone:
    return ZygoteGone("the zygote or what it forked was killed")


def _host_pid(pidfd: int) -> int:
    """Return a process's pid in this namespace; a process that has ended has none."""
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    pid = next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
    if pid <= 0:
        raise SandboxStartFailed("the sandbox ended while it was started", {"detail": f"pid {pid}"})
    return pid


def _request(plan: Plan, zygote: Zygote, group: Group | None, config: int, driver: int) -> None:
    with ExitStack() as stack:
        lock, status, output = open_files(plan.folder, stack)
        events = stack.enter_context(open_events(group)) if group else None
        fds = [lock, status, output, config, driver]
        zygote.request(_request_body(plan), fds if events is None else [*fds, events])


def _request_body(plan: Plan) -> dict[str, object]:
    """Return what a sandbox mounts of its own: directories of the host, file systems in memory."""
    folder, size, scratch = plan.folder, plan.mounts.disk_bytes, plan.mounts.scratch_bytes
    sockets = (f"{SOCKETS_OF_ALL}/{folder.sockets.name}", SOCKETS)
    if size:
        return {"binds": [sockets], "memory": [(WORKSPACE, "0700", size)], "scratch": scratch}
    workspace = (f"{FOLDERS_OF_ALL}/{folder.root.name}/{folder.workspace.name}", WORKSPACE)
    return {"binds": [workspace, sockets], "memory": [], "scratch": scratch}


@asynccontextmanager
async def _ended_on_error(folder: Folder) -> AsyncGenerator[None]:
    """End a sandbox if the block fails or is cancelled: without a pid yet, it ends as its sockets close."""
    try:
        yield
    except BaseException:
        await to_the_end(end(folder))
        raise
