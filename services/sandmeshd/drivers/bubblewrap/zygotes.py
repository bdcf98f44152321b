"""The zygotes of a driver: each has the code of sandboxes with the same mounts imported, and spawns them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.bubblewrap.arguments import (
    FOLDERS_OF_ALL,
    SOCKETS_OF_ALL,
    Mounts,
    View,
    ZygoteDescriptors,
    memory_mounts,
    zygote_arguments,
)
from sandmeshd.drivers.bubblewrap.exec_start import launch, memory_file
from sandmeshd.drivers.bubblewrap.pipes import parse
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.uid_map import UidMap
from sandmeshd.drivers.node.agent_config import ENVIRONMENT, HOME
from sandmeshd.drivers.node.processes import reap
from sandmeshd.runtime.child_process import readable

END_SECONDS = 2.0
TAIL_BYTES = 2048
SEND_BYTES = 1 << 20

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

    @staticmethod
    def of(mounts: Mounts, variables: Mapping[str, str]) -> ZygoteKey:
        """Return the key of sandboxes with these mounts and shared variables."""
        shared = tuple(sorted(variables.items()))
        paths = (mounts.environment, mounts.home_files, mounts.agent, mounts.mcp)
        return ZygoteKey(*paths, mounts.system, mounts.data, mounts.scratch, shared)


class Zygote:
    """A running zygote."""

    def __init__(self, control: socket.socket, pidfd: int) -> None:
        self._control = control
        self._pidfd = pidfd
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
        async with asyncio.timeout(END_SECONDS):
            await readable(self._control.fileno())
            if not parse(self._control.recv(TAIL_BYTES)).get("living"):
                await readable(self._pidfd)


class Zygotes:
    """The zygotes of a driver, one a key, each started when it is first needed."""

    def __init__(self, settings: BubblewrapSettings, view: View, agent_filter: bytes) -> None:
        self._settings = settings
        self._view = view
        self._filter = agent_filter
        self._starting: dict[ZygoteKey, asyncio.Task[Zygote]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def of(self, mounts: Mounts, variables: Mapping[str, str]) -> Zygote:
        """Return the zygote of such sandboxes, started now unless it runs.

        Raises:
            SpawnFailed: It cannot be started, or the driver closes.
        """
        if self._closed:
            raise SpawnFailed("the driver has closed its zygotes")
        key = ZygoteKey.of(mounts, variables)
        task = self._starting.get(key)
        if task is None or (task.done() and not _lives(task)):
            self._forget(key)
            task = self._starting[key] = asyncio.create_task(self._start(mounts, key))
            self._retire_stale(key)
        return await asyncio.shield(task)

    def _retire_stale(self, newest: ZygoteKey) -> None:
        """Release zygotes whose agent is not the current one."""
        for key in [key for key in self._starting if key.agent != newest.agent]:
            self._forget(key)

    def _forget(self, key: ZygoteKey) -> None:
        task = self._starting.pop(key, None)
        if task is not None:
            closing = asyncio.create_task(_close(task))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _start(self, mounts: Mounts, key: ZygoteKey) -> Zygote:
        output = os.memfd_create("zygote", os.MFD_CLOEXEC)
        try:
            with closing(UidMap(self._settings, wanted=bool(self._settings.uid_range))) as uid_map:
                zygote = self._launch(mounts, output, uid_map)
                await self._configure(zygote, uid_map, self._config(mounts, key), output)
        except OSError as error:
            raise SpawnFailed(f"no zygote could be started: {error}") from None
        finally:
            os.close(output)
        log.info("a zygote is ready", environment=str(mounts.environment))
        return zygote

    async def _configure(self, zygote: Zygote, uid_map: UidMap, config: dict[str, object], output: int) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await uid_map.write()
                await zygote.configure(config, output)
        except TimeoutError:
            await zygote.close()
            raise SpawnFailed(f"no zygote was ready within {self._settings.start_timeout:g} s") from None
        except BaseException:
            await zygote.close()
            raise

    def _launch(self, mounts: Mounts, output: int, uid_map: UidMap) -> Zygote:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as stack, theirs, memory_file(self._filter) as seccomp:
            stack.enter_context(ours)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            ours.setblocking(False)
            descriptors = ZygoteDescriptors(theirs.fileno(), seccomp, uid_map.theirs())
            command = zygote_arguments(self._view, mounts, descriptors, self._settings.ends_with_driver)
            zygote = Zygote(ours, launch(command, output, descriptors.all()))
            stack.pop_all()
        uid_map.close_theirs()
        return zygote

    def _config(self, mounts: Mounts, key: ZygoteKey) -> dict[str, object]:
        seeds = [(f"{ENVIRONMENT}/home/{name}", f"{HOME}/{name}") for name in mounts.home_files]
        hidden = [FOLDERS_OF_ALL, SOCKETS_OF_ALL]
        memory, size = memory_mounts(mounts.scratch), self._settings.scratch_bytes
        view = {"memory": memory, "size": size, "seeds": seeds, "hidden": hidden}
        return {"view": view, "python": f"{ENVIRONMENT}/bin/python", "environment": dict(key.variables)}

    async def close(self) -> None:
        """Release all, and start no other."""
        self._closed = True
        for key in list(self._starting):
            self._forget(key)
        if self._closing:
            await asyncio.wait(self._closing)


def _lives(task: asyncio.Task[Zygote]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result().alive


async def _close(task: asyncio.Task[Zygote]) -> None:
    if not task.done():
        task.cancel()
    found = await asyncio.gather(task, return_exceptions=True)
    for zygote in found:
        if isinstance(zygote, Zygote):
            await zygote.close()
