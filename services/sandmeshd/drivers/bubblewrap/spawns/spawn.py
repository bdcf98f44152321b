"""One sandbox that a zygote spawns, from the request until its agent listens."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group
from sandmeshd.drivers.bubblewrap.pipes import Pipe, parse
from sandmeshd.drivers.bubblewrap.starts.exec_start import failed, open_cgroup_fds
from sandmeshd.drivers.bubblewrap.starts.zygotes import SpawnFailed, ZygoteGone
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.processes.child_process import readable

READ_BYTES = 1 << 16

log = structlog.get_logger()


class Spawn:
    """The exchange of messages with a sandbox that is being spawned; it owns `socket_` and `config`."""

    def __init__(self, folder: Folder, group: Group | None, socket_: socket.socket, config: Pipe, uid: int) -> None:
        socket_.setblocking(False)
        self.uid = uid
        """The uid of its processes on the host."""
        self.folder = folder
        """Where the sandbox is; a spare moves to another place when it is taken."""
        self._group = group
        self._socket = socket_
        self._config = config
        self._line = b""
        self._seen: set[str] = set()
        self._start_time = time.monotonic()
        self.said: dict[str, object] = {}
        """What its agent said when it listened."""
        self._user: int | None = None
        """The pidfd of user code's first process, while the sandbox waits for its configuration."""
        self._watching = False

    async def prepare(self) -> None:
        """Return when both sides of the sandbox wait for its configuration.

        Raises:
            ZygoteGone: The zygote or what it forked was killed.
            SpawnFailed: The kernel refuses what spawning requires.
        """
        await self._receive_until({"init", "user"})

    async def run(self, line: bytes) -> None:
        """Configure the sandbox's agent, and return when it listens.

        Raises:
            ZygoteGone: The zygote or what it forked was killed.
            SpawnFailed: The kernel refuses what spawning requires.
            SandboxStartFailed: The agent did not start.
        """
        self._line = line
        self._start_time = time.monotonic()
        if "init" in self._seen:
            self._fill()
        await self._receive_until({"ready"})

    def waits(self) -> bool:
        """Return whether a prepared sandbox still waits: one that ended has closed its socket."""
        found = select.poll()
        for descriptor in self._descriptors():
            found.register(descriptor, select.POLLIN)
        return not found.poll(0)

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` if a prepared sandbox ends, or one of its two processes, until `unwatch`."""
        for descriptor in self._descriptors():
            asyncio.get_running_loop().add_reader(descriptor, on_end)
        self._watching = True

    def unwatch(self) -> None:
        """Watch no more: the sandbox is used, or ends."""
        if self._watching:
            for descriptor in self._descriptors():
                asyncio.get_running_loop().remove_reader(descriptor)
        self._watching = False
        if self._user is not None:
            os.close(self._user)
            self._user = None

    def _descriptors(self) -> list[int]:
        return [self._socket.fileno(), *([] if self._user is None else [self._user])]

    def detach_config(self) -> int:
        """Return the configuration's pipe, whose closing ends the sandbox; the caller closes it."""
        return self._config.detach_writer()

    def close(self) -> None:
        """Close what is still open; a sandbox that was not configured ends."""
        self.unwatch()
        self._socket.close()
        self._config.close()

    async def _receive_until(self, steps: set[str]) -> None:
        try:
            while not steps <= self._seen:
                await self._receive()
        except (ConnectionError, ProcessLookupError):
            # It was killed before it read its configuration, or between two reads of /proc.
            raise _killed() from None

    async def _receive(self) -> None:
        await readable(self._socket.fileno())
        data, fds, _, _ = socket.recv_fds(self._socket, READ_BYTES, 1)
        try:
            self._handle(parse(data), fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _handle(self, message: dict[str, object], fds: list[int]) -> None:
        if "init" in message:
            pid = _host_pid(fds[0])
            if pid > 0:
                self._write_status(pid)
                self._join(pid)
                self._fill()
            # One that has ended by now has sent why: that is the next message.
        elif "user" in message:
            # No user code has run yet: that process, and all that it will fork, wait for the response.
            pid = _host_pid(fds[0])
            if pid <= 0:
                raise SandboxStartFailed("the sandbox ended while it was started", {"detail": f"pid {pid}"})
            self._join(pid)
            if not self._line:
                self._user = os.dup(fds[0])
            with open_cgroup_fds(self._group) as cgroup_fds:
                socket.send_fds(self._socket, [b"go"], cgroup_fds)
        elif "ready" in message:
            self.said = message
        else:
            self._fail(message)
        self._seen |= message.keys()
        seconds = round(time.monotonic() - self._start_time, 6)
        log.debug("a sandbox is being spawned", sandbox_id=self.folder.sandbox_id, step=min(message), seconds=seconds)

    def _fill(self) -> None:
        if self._line:
            self._config.fill(self._line)

    def _join(self, pid: int) -> None:
        if self._group is not None:
            self._group.join(pid)

    def _write_status(self, pid: int) -> None:
        with self.folder.status.open("a") as status:
            status.write(json.dumps({"child-pid": pid}) + "\n")

    def _fail(self, message: dict[str, object]) -> None:
        if not message:
            raise _killed()
        if "setup" in message:
            raise SpawnFailed(str(message["error"]))
        raise failed(self.folder, str(message.get("error") or "its agent ended immediately"))


def _killed() -> ZygoteGone:
    return ZygoteGone("the zygote or what it forked was killed")


def _host_pid(pidfd: int) -> int:
    """Return a process's pid in this namespace; that of one that has ended is not positive."""
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
