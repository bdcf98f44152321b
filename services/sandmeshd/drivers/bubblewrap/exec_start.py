"""Starts a sandbox the exec way: makes its folder, runs bwrap, tells the agent what it is, waits until it listens."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
from base64 import b64encode
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.errors import InvalidArgument, SandboxStartFailed
from sandmeshd.drivers.bubblewrap.arguments import Descriptors, Mounts, View, sandbox_arguments
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group, Groups, Wanted
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.processes import end, reap, to_the_end
from sandmeshd.drivers.node.records import Folder, Record
from sandmeshd.runtime.child_process import readable

CONFIG_BYTES = 1 << 20
PIPE_BYTES = 1 << 16
TAIL_BYTES = 4096
READY_BYTES = 1 << 16


@dataclass(frozen=True)
class Plan:
    """One sandbox to be started."""

    folder: Folder
    record: Record
    mounts: Mounts
    config: agent_pb2.AgentConfig
    wanted: Wanted
    variables: Mapping[str, str]
    """The environment variables that every sandbox of its zygote has; the config has its own too."""


class Way(Protocol):
    """A way to start sandboxes."""

    async def start(self, plan: Plan) -> int | None:
        """Start a sandbox and return when its agent listens.

        What it gives is the pipe's end that ends the sandbox when it closes; None where it outlives the driver. When
        it fails the caller removes what was begun.

        Raises:
            SandboxStartFailed: The agent did not come up; `facts["detail"]` has its last words.
            InvalidArgument: What the agent must be told is larger than 1 MiB.
            CapabilityMissing: The machine does not allow a limit as high or as low as what is wanted.
        """
        ...


class Starter:
    """Starts sandboxes of one driver, each by a bwrap of its own."""

    def __init__(self, settings: BubblewrapSettings, view: View, agent_filter: bytes, groups: Groups) -> None:
        self.groups = groups
        """The control groups that sandboxes can be put into."""
        self._settings = settings
        self._view = view
        self._filter = agent_filter

    async def start(self, plan: Plan) -> int | None:
        """Start a sandbox and return when its agent listens: see Way."""
        make_folder(plan, self._settings)
        group = self.groups.make(plan.folder, plan.wanted)
        with ExitStack() as stack:
            told = stack.enter_context(open_pipe())
            answered = stack.enter_context(open_pipe())
            told.fill(written(plan.config))
            async with _abandoned(plan.folder, self._spawn(plan, told.reader, answered.writer, group)):
                told.close_reader()
                answered.close_writer()
                await self._ready(plan.folder, answered.reader)
            return told.detach_writer() if self._settings.ends_with_driver else None

    def _spawn(self, plan: Plan, config: int, ready: int, group: Group | None) -> int:
        folder = plan.folder
        with ExitStack() as stack:
            lock, status, output = open_files(folder, stack)
            seccomp = stack.enter_context(memory_file(self._filter))
            memory = stack.enter_context(open_events(group)) if group else None
            doors = stack.enter_context(open_doors(group))
            passed = Descriptors(lock, status, seccomp, config, ready, memory, plan.mounts.workspace_fd, doors)
            arguments = sandbox_arguments(self._view, plan.mounts, passed, self._settings.ends_with_driver)
            return _launch([*(group.entered() if group else []), *arguments], output, passed.all())

    async def _ready(self, folder: Folder, reader: int) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                line = await _line(reader)
        except TimeoutError:
            raise failed(folder, f"its agent did not listen within {self._settings.start_timeout:g} s") from None
        answer = parsed(line)
        if answer.get("ready") is not True:
            raise failed(folder, str(answer.get("error") or "its agent ended at once"))


def make_folder(plan: Plan, settings: BubblewrapSettings) -> None:
    """Make what a sandbox has on the host."""
    folder = plan.folder
    folder.root.mkdir()
    folder.root.chmod(0o711 if os.geteuid() == 0 else 0o700)
    plan.record.write(folder)
    for inner in (folder.workspace, folder.sockets):
        inner.mkdir(exist_ok=True)
        inner.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(inner, settings.host_uid, settings.host_gid)


def open_files(folder: Folder, stack: ExitStack) -> tuple[int, int, int]:
    """Open a new sandbox's lock, held from now on, its status and its log, for as long as the stack is."""
    lock = stack.enter_context(_opened(folder.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return lock, stack.enter_context(_opened(folder.status, append)), stack.enter_context(_opened(folder.log, append))


def _launch(arguments: list[str], output: int, passed: tuple[int, ...]) -> int:
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=passed,
        cwd="/",
        env={},
        start_new_session=True,
        umask=0o022,
    )
    # The sandbox may outlive this process, and nobody waits for it by this object.
    process.returncode = 0
    return os.pidfd_open(process.pid)


@asynccontextmanager
async def _abandoned(folder: Folder, monitor: int) -> AsyncGenerator[None]:
    """End a sandbox with its monitor when the block fails or is cancelled."""
    try:
        yield
    except BaseException:
        await to_the_end(_end_with(folder, monitor))
        raise
    finally:
        os.close(monitor)


async def _end_with(folder: Folder, monitor: int) -> None:
    await end(folder)
    await readable(monitor)
    reap(monitor)


@dataclass
class Pipe:
    """A pipe's two ends; -1 is one that was closed or given away."""

    reader: int
    writer: int

    def fill(self, data: bytes) -> None:
        """Put what must fit into the pipe, so that nobody has to wait for its reader."""
        if len(data) > PIPE_BYTES:
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, CONFIG_BYTES)
        os.write(self.writer, data)

    def close_reader(self) -> None:
        """Close the end that another process has by now."""
        os.close(self.reader)
        self.reader = -1

    def close_writer(self) -> None:
        """Close the end that another process has by now."""
        os.close(self.writer)
        self.writer = -1

    def detach_writer(self) -> int:
        """Give away the writer."""
        writer, self.writer = self.writer, -1
        return writer


@contextmanager
def open_pipe() -> Generator[Pipe]:
    """Give a pipe for the time of a block."""
    pipe = Pipe(*os.pipe2(os.O_CLOEXEC))
    try:
        yield pipe
    finally:
        for descriptor in (pipe.reader, pipe.writer):
            if descriptor >= 0:
                os.close(descriptor)


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_events(group: Group) -> Generator[int | None]:
    """Give what counts processes of a group ended for want of memory, where memory has a limit."""
    descriptor = group.open_events()
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def open_doors(group: Group | None) -> Generator[tuple[int, ...]]:
    """Give what lets a process move itself to where a group's limits hold; nothing where there is no group."""
    doors = group.open_doors() if group else []
    try:
        yield tuple(doors)
    finally:
        for door in doors:
            os.close(door)


@contextmanager
def memory_file(data: bytes) -> Generator[int]:
    """Give a descriptor of a file in memory, at its start: each reader needs one of its own."""
    descriptor = os.memfd_create("data", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def written(config: agent_pb2.AgentConfig) -> bytes:
    """Give the line that an agent is told.

    Raises:
        InvalidArgument: It is larger than 1 MiB.
    """
    line = b64encode(config.SerializeToString()) + b"\n"
    if len(line) > CONFIG_BYTES:
        raise InvalidArgument("the environment variables are larger than 1 MiB", {"field": "spec.environment"})
    return line


async def _line(reader: int) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < READY_BYTES:
        await readable(reader)
        part = os.read(reader, 4096)
        if not part:
            break
        data += part
    return data


def parsed(line: bytes) -> dict[str, object]:
    """Give what an agent answered, nothing where that is no JSON object."""
    try:
        answer = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, object]", answer) if isinstance(answer, dict) else {}


def failed(folder: Folder, why: str) -> SandboxStartFailed:
    """Say that a sandbox did not start, with the last words of its log."""
    detail = folder.tail(TAIL_BYTES)[0].decode("utf-8", "replace").strip()
    return SandboxStartFailed(f"{folder.sandbox_id} could not be started: {why}", {"detail": detail or why})
