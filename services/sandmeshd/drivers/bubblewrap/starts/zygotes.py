"""The zygotes of a driver: each has the code of sandboxes with the same mounts imported, and spawns them."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.bubblewrap.arguments import Mounts
from sandmeshd.drivers.bubblewrap.pipes import parse
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.processes import reap
from sandmeshd.runtime.processes.child_process import readable

END_SECONDS = 2.0
IMPORT_SECONDS = 15.0
"""How long one that is not up yet may take to notice that it is not wanted: it imports first."""

TAIL_BYTES = 2048
SHARED = ""
"""The owner of the zygote for pools, whose owners are not known yet, and for owners beyond the most that have one."""

UNCLAIMED = "?"
"""The owner of a zygote that stands by: the first that needs one becomes its owner."""

log = structlog.get_logger()


class SpawnFailed(Exception):
    """A zygote could not spawn a sandbox; the text says why."""


class ZygoteGone(SpawnFailed):
    """The zygote has died; another one may succeed."""


@dataclass(frozen=True)
class ZygoteKey:
    """What the sandboxes of one zygote have in common."""

    environment: Path
    home_files: tuple[str, ...]
    agent: Path
    mcp: Path
    system: tuple[str, ...] | None
    data: tuple[tuple[Path, str], ...]
    scratch: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    owner: str

    @staticmethod
    def of(mounts: Mounts, variables: Mapping[str, str], owner: str) -> ZygoteKey:
        """Return the key of an owner's sandboxes with these mounts and shared variables."""
        shared = tuple(sorted(variables.items()))
        paths = (mounts.environment, mounts.home_files, mounts.agent, mounts.mcp)
        return ZygoteKey(*paths, mounts.system, mounts.data, mounts.scratch, shared, owner)


class RunningZygote:
    """A running zygote."""

    def __init__(self, control: socket.socket, pidfd: int) -> None:
        self._control = control
        self._pidfd = pidfd
        self.forks = 0
        """How many sandboxes were requested of it."""
        self._end: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it accepts requests."""
        return self._end is not None and not self._end.done()

    def request(self, request: dict[str, object], fds: list[int]) -> None:
        """Request a sandbox; the descriptors are duplicated.

        Raises:
            ZygoteGone: It does not accept requests.
        """
        self.forks += 1
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], fds)
        except OSError as error:
            raise ZygoteGone(f"the zygote does not accept requests: {error}") from None

    async def configure(self, config: dict[str, object], output: int) -> None:
        """Send its configuration, and return when it accepts requests.

        Raises:
            SpawnFailed: It ended instead.
            SandboxStartFailed: Its agent starts no sandboxes, however they are started.
        """
        with suppress(OSError):
            self._control.send(json.dumps(config).encode())
        await readable(self._control.fileno())
        with suppress(OSError):
            report = parse(self._control.recv(TAIL_BYTES))
            if report.get("up") is True:
                self._end = asyncio.create_task(self._ended())
                return
            if refusal := report.get("refused"):
                raise SandboxStartFailed(f"the agent starts no sandboxes: {refusal}", {"detail": str(refusal)})
        tail = os.pread(output, TAIL_BYTES, max(0, os.fstat(output).st_size - TAIL_BYTES))
        raise SpawnFailed(f"no zygote could be started: {tail.decode('utf-8', 'replace').strip()}")

    async def _ended(self) -> None:
        # It sends nothing after it is up: the socket is readable only at its end.
        await readable(self._control.fileno())
        log.warning("a zygote accepts no more requests; the next create starts another")

    def watch(self) -> int:
        """Return another descriptor of its process, which becomes readable at its end."""
        return os.dup(self._pidfd)

    async def close(self) -> None:
        """Release it: it ends with the last sandbox that it spawned. Cancelled, this leaves nothing open either."""
        try:
            if self._end is not None:
                self._end.cancel()
                await asyncio.wait([self._end])
            with suppress(TimeoutError, OSError):
                await self._shut_down()
        finally:
            # In a cancelled task, the timeout raises another CancelledError on some versions of Python.
            self._control.close()
            reap(self._pidfd)
            os.close(self._pidfd)

    async def _shut_down(self) -> None:
        self._control.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(IMPORT_SECONDS if self._end is None else END_SECONDS):
            await readable(self._control.fileno())
            if not parse(self._control.recv(TAIL_BYTES)).get("living"):
                await readable(self._pidfd)


class ZygoteLauncher(Protocol):
    """Starts the zygotes of one kind of root."""

    async def start(self, mounts: Mounts, key: ZygoteKey, output: int) -> RunningZygote:
        """Start the zygote of such sandboxes and return when it accepts requests; `output` is where it may write.

        Raises:
            SpawnFailed: It ended instead.
            SandboxStartFailed: Its agent starts no sandboxes, however they are started.
            OSError: The system refuses it.
        """
        ...


class Zygotes:
    """The zygotes of a driver, each started when it is first needed: one for each owner of each kind of sandbox.

    At most `settings.zygotes` are owners', counting those that ended but have living sandboxes: sandboxes of further
    owners come from one that they share with pools.
    """

    def __init__(self, settings: BubblewrapSettings, launcher: ZygoteLauncher) -> None:
        self.on_retirement: Callable[[ZygoteKey], None] = _ignored
        """Called with the key of each zygote that is to spawn no more."""
        self._settings = settings
        self._launcher = launcher
        self._starting: dict[ZygoteKey, asyncio.Task[RunningZygote]] = {}
        self._used: dict[ZygoteKey, float] = {}
        self._retired: list[int] = []
        self._renewing: set[ZygoteKey] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def claim(self, key: ZygoteKey) -> tuple[ZygoteKey, ZygoteKey | None]:
        """Return the key of the zygote that is to spawn an owner's sandbox, and the key that it had until now.

        It is the owner's; for a new owner the one that stands by, if there is one; where as many owners have theirs as
        may, the one that is shared.
        """
        self._retire_idle()
        if key.owner != SHARED and not self._has(key) and self._owned() >= self._settings.zygotes:
            log.info("an owner shares a zygote: as many as may have their own", most=self._settings.zygotes)
            key = replace(key, owner=SHARED)
        unclaimed = replace(key, owner=UNCLAIMED)
        adopts = not self._has(key) and self._has(unclaimed)
        if adopts:
            self._forget(key)
            self._starting[key] = self._starting.pop(unclaimed)
        self._used[key] = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._settings.zygote_idle, self._look_for_idle)
        return key, unclaimed if adopts else None

    def is_of_another(self, key: ZygoteKey) -> bool:
        """Return whether a zygote of such sandboxes runs that is another owner's."""
        return any(replace(begun, owner=key.owner) == key != begun for begun in self._starting if self._has(begun))

    def expects_owners(self, key: ZygoteKey) -> bool:
        """Return whether several owners have zygotes of such sandboxes, and another may have one."""
        owners = [
            begun for begun in self._starting if begun.owner != UNCLAIMED and replace(begun, owner=key.owner) == key
        ]
        return len(owners) > 1 and self._owned() < self._settings.zygotes

    def current(self, key: ZygoteKey) -> RunningZygote | None:
        """Return the zygote of a key, if it runs."""
        task = self._starting.get(key)
        return task.result() if task is not None and task.done() and _lives(task) else None

    async def of(self, mounts: Mounts, key: ZygoteKey) -> RunningZygote:
        """Return the zygote of such sandboxes, started now unless it runs.

        Raises:
            SpawnFailed: It cannot be started, or the driver closes.
        """
        if self._closed:
            raise SpawnFailed("the driver has closed its zygotes")
        if not self._has(key):
            self._forget(key)
            self._starting[key] = asyncio.create_task(self._start(mounts, key))
            self._retire_stale(key)
        if key.owner != UNCLAIMED:
            self._used[key] = time.monotonic()
        zygote = await asyncio.shield(self._starting[key])
        if key.owner == SHARED and zygote.forks >= self._settings.zygote_forks and key not in self._renewing:
            self._renewing.add(key)
            self._background(self._renew(mounts, key))
        return zygote

    async def _renew(self, mounts: Mounts, key: ZygoteKey) -> None:
        """Replace a zygote by another of the same key, which is ready before the first is released."""
        task = asyncio.create_task(self._start(mounts, key))
        try:
            await asyncio.wait([task])
            if self._closed or not _lives(task):
                self._background(_close(task))
                return
            self._forget(key)
            self._starting[key] = task
        finally:
            self._renewing.discard(key)

    def _has(self, key: ZygoteKey) -> bool:
        task = self._starting.get(key)
        return task is not None and (not task.done() or _lives(task))

    def _owned(self) -> int:
        """Count owners' zygotes, and the retired ones whose sandboxes are alive."""
        poll = select.poll()
        for fd in self._retired:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(0):
            self._retired.remove(fd)
            reap(fd)
            os.close(fd)
        return len(self._retired) + sum(key.owner not in (SHARED, UNCLAIMED) for key in self._starting)

    def _look_for_idle(self) -> None:
        self._timer = None
        self._retire_idle()
        if len(self._used) > 1:
            self._timer = asyncio.get_running_loop().call_later(self._settings.zygote_idle, self._look_for_idle)

    def _retire_idle(self) -> None:
        """Release the zygotes of owners who created nothing recently, but not the one that was used last."""
        latest = max(self._used, key=lambda key: self._used[key], default=None)
        limit = time.monotonic() - self._settings.zygote_idle
        for key in [key for key, used in self._used.items() if used < limit and key != latest]:
            self._forget(key)

    def _retire_stale(self, newest: ZygoteKey) -> None:
        """Release zygotes whose agent is not the current one."""
        for key in [key for key in self._starting if key.agent != newest.agent]:
            self._forget(key)

    def _forget(self, key: ZygoteKey) -> None:
        self._used.pop(key, None)
        zygote = self.current(key)
        task = self._starting.pop(key, None)
        if task is None:
            return
        if zygote is not None and key.owner not in (SHARED, UNCLAIMED):
            self._retired.append(zygote.watch())
        self.on_retirement(key)
        self._background(_close(task))

    def _background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _start(self, mounts: Mounts, key: ZygoteKey) -> RunningZygote:
        output = os.memfd_create("zygote", os.MFD_CLOEXEC)
        try:
            zygote = await self._launcher.start(mounts, key, output)
        except OSError as error:
            raise SpawnFailed(f"no zygote could be started: {error}") from None
        finally:
            os.close(output)
        log.info("a zygote is ready", environment=str(mounts.environment))
        return zygote

    async def close(self) -> None:
        """Release all, and start no other."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for key in list(self._starting):
            self._forget(key)
        while self._closing:
            await asyncio.wait(self._closing)
        for fd in self._retired:
            os.close(fd)
        self._retired.clear()


def _ignored(_: ZygoteKey) -> None:
    """Ignore a retirement."""


def _lives(task: asyncio.Task[RunningZygote]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result().alive


async def _close(task: asyncio.Task[RunningZygote]) -> None:
    if not task.done():
        task.cancel()
    found = await asyncio.gather(task, return_exceptions=True)
    for zygote in found:
        if isinstance(zygote, RunningZygote):
            await zygote.close()
