"""The zygotes of a driver: each stands by with one kind of sandbox's code imported, and forks such sandboxes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from sandmeshd.drivers.bubblewrap.arguments import (
    FOLDERS_OF_ALL,
    IN_MEMORY,
    SOCKETS_OF_ALL,
    Mounts,
    View,
    zygote_arguments,
)
from sandmeshd.drivers.bubblewrap.exec_start import memory_file, parsed
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.agent_config import ENVIRONMENT, HOME
from sandmeshd.drivers.node.processes import reap
from sandmeshd.runtime.child_process import readable

END_SECONDS = 2.0
TAIL_BYTES = 2048
SEND_BYTES = 1 << 20

log = structlog.get_logger()


class CannotFork(Exception):
    """A sandbox could not be forked; the text says why."""


class ZygoteGone(CannotFork):
    """The zygote died meanwhile; another one may do it."""


@dataclass(frozen=True)
class Kind:
    """What sandboxes of one zygote have in common."""

    environment: Path
    home_files: tuple[str, ...]
    agent: Path
    mcp: Path
    variables: tuple[tuple[str, str], ...]

    @staticmethod
    def of(mounts: Mounts, variables: Mapping[str, str]) -> Kind:
        """Give the kind of sandboxes with such mounts, and the variables that their template gives user code."""
        return Kind(mounts.environment, mounts.home_files, mounts.agent, mounts.mcp, tuple(sorted(variables.items())))


class Zygote:
    """A zygote that runs, ready when it is given to others."""

    def __init__(self, control: socket.socket, pidfd: int) -> None:
        self._control = control
        self._pidfd = pidfd
        self._end: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it takes requests."""
        return self._end is not None and not self._end.done()

    def ask(self, request: dict[str, object], fds: list[int]) -> None:
        """Ask for a sandbox; the descriptors are copied.

        Raises:
            ZygoteGone: It takes no requests.
        """
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], fds)
        except OSError as error:
            raise ZygoteGone(f"the zygote takes no requests: {error}") from None

    async def ready(self, told: dict[str, object], output: int) -> None:
        """Tell it what it is, and return when it takes requests.

        Raises:
            CannotFork: It ended instead.
        """
        with suppress(OSError):
            self._control.send(json.dumps(told).encode())
        await readable(self._control.fileno())
        with suppress(OSError):
            if parsed(self._control.recv(TAIL_BYTES)).get("up") is True:
                self._end = asyncio.create_task(self._ended())
                return
        words = os.pread(output, TAIL_BYTES, max(0, os.fstat(output).st_size - TAIL_BYTES))
        raise CannotFork(f"no zygote could be started: {words.decode('utf-8', 'replace').strip()}")

    async def _ended(self) -> None:
        # It says nothing after it is up: what can be read is its end.
        await readable(self._control.fileno())
        log.warning("a zygote takes no more requests; the next create starts another")

    async def close(self) -> None:
        """Let it go: it ends when the last sandbox that it forked did. Cut short, this holds nothing open either."""
        try:
            if self._end is not None:
                self._end.cancel()
                await asyncio.wait([self._end])
            with suppress(TimeoutError, OSError):
                await self._last_words()
        finally:
            # In a task that was cancelled, the end of the time comes as another cancellation on some Pythons.
            self._control.close()
            reap(self._pidfd)
            os.close(self._pidfd)

    async def _last_words(self) -> None:
        self._control.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(END_SECONDS):
            await readable(self._control.fileno())
            if not parsed(self._control.recv(TAIL_BYTES)).get("living"):
                await readable(self._pidfd)


class Zygotes:
    """Starts zygotes, one a kind, and finds them again."""

    def __init__(self, settings: BubblewrapSettings, view: View, agent_filter: bytes) -> None:
        self._settings = settings
        self._view = view
        self._filter = agent_filter
        self._starting: dict[Kind, asyncio.Task[Zygote]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def of(self, mounts: Mounts, variables: Mapping[str, str]) -> Zygote:
        """Give the zygote for such sandboxes, started now where there is none.

        Raises:
            CannotFork: None can be started, or all were let go.
        """
        if self._closed:
            raise CannotFork("the driver has let its zygotes go")
        kind = Kind.of(mounts, variables)
        task = self._starting.get(kind)
        if task is None or (task.done() and not _lives(task)):
            self._forget(kind)
            task = self._starting[kind] = asyncio.create_task(self._start(mounts, kind))
            self._retire_stale(kind)
        return await asyncio.shield(task)

    def _retire_stale(self, newest: Kind) -> None:
        """Let zygotes go whose agent is not the one of today."""
        for kind in [kind for kind in self._starting if kind.agent != newest.agent]:
            self._forget(kind)

    def _forget(self, kind: Kind) -> None:
        task = self._starting.pop(kind, None)
        if task is not None:
            closing = asyncio.create_task(_close(task))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _start(self, mounts: Mounts, kind: Kind) -> Zygote:
        output = os.memfd_create("zygote", os.MFD_CLOEXEC)
        try:
            zygote = self._launch(mounts, output)
            await self._until_ready(zygote, self._told(mounts, kind), output)
        except OSError as error:
            raise CannotFork(f"no zygote could be started: {error}") from None
        finally:
            os.close(output)
        log.info("a zygote is ready", environment=str(mounts.environment))
        return zygote

    async def _until_ready(self, zygote: Zygote, told: dict[str, object], output: int) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await zygote.ready(told, output)
        except TimeoutError:
            await zygote.close()
            raise CannotFork(f"no zygote was ready within {self._settings.start_timeout:g} s") from None
        except BaseException:
            await zygote.close()
            raise

    def _launch(self, mounts: Mounts, output: int) -> Zygote:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as stack, theirs, memory_file(self._filter) as seccomp:
            stack.enter_context(ours)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            ours.setblocking(False)
            passed = theirs.fileno(), seccomp
            process = subprocess.Popen(
                zygote_arguments(self._view, mounts, passed, self._settings.ends_with_driver),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=passed,
                cwd="/",
                env={},
                start_new_session=True,
                umask=0o022,
            )
            # It may outlive this process, and nobody waits for it by this object.
            process.returncode = 0
            zygote = Zygote(ours, os.pidfd_open(process.pid))
            stack.pop_all()
        return zygote

    def _told(self, mounts: Mounts, kind: Kind) -> dict[str, object]:
        seeds = [(f"{ENVIRONMENT}/home/{name}", f"{HOME}/{name}") for name in mounts.home_files]
        hidden = [FOLDERS_OF_ALL, SOCKETS_OF_ALL]
        view = {"memory": IN_MEMORY, "size": self._settings.scratch_bytes, "seeds": seeds, "hidden": hidden}
        return {"view": view, "python": f"{ENVIRONMENT}/bin/python", "environment": dict(kind.variables)}

    async def close(self) -> None:
        """Let all go, and start no other."""
        self._closed = True
        for kind in list(self._starting):
            self._forget(kind)
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
