"""The start of a sandbox by a bwrap of its own, and what every mode of starting uses."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.bubblewrap.arguments import Descriptors, Mounts, View, sandbox_arguments
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group, GroupLimits, Groups
from sandmeshd.drivers.bubblewrap.identity import Lease, Leases, sandbox_identity
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.agent_config import CONFIG_BYTES, encode_config
from sandmeshd.drivers.node.processes import end, reap, to_the_end
from sandmeshd.drivers.node.records import Folder, Record
from sandmeshd.runtime.child_process import readable

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
    limits: GroupLimits
    variables: Mapping[str, str]
    """The environment variables that all sandboxes of its zygote have; the config also has the sandbox's own."""


class StartMode(Protocol):
    """A mode of starting sandboxes."""

    async def start(self, plan: Plan) -> int | None:
        """Start a sandbox and return when its agent listens.

        Returns: the pipe's end whose closing ends the sandbox; None if it outlives the driver. On failure the caller
        removes what was started.

        Raises:
            SandboxStartFailed: The agent did not start; `facts["detail"]` has the end of its log.
            InvalidArgument: The agent's configuration is larger than 1 MiB.
            CapabilityMissing: The machine does not allow a limit as high or as low as the requested one.
        """
        ...


class ExecStarter:
    """Starts the sandboxes of one driver, each by a bwrap of its own."""

    def __init__(
        self, settings: BubblewrapSettings, view: View, agent_filter: bytes, groups: Groups, leases: Leases
    ) -> None:
        self.groups = groups
        """The control groups that this machine offers."""
        self._settings = settings
        self._leases = leases
        self._view = view
        self._filter = agent_filter

    async def start(self, plan: Plan) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`."""
        # A directory of the host is there for the one uid that its owner knows of.
        shared = bool(plan.mounts.host_directories)
        with closing(self._leases.shared() if shared else self._leases.lease()) as lease:
            return await self._start(plan, lease)

    async def _start(self, plan: Plan, lease: Lease) -> int | None:
        make_folder(plan.folder, lease)
        note_uid(plan.record, lease.uid)
        plan.record.write(plan.folder)
        group = self.groups.make(plan.folder, plan.limits)
        with ExitStack() as stack:
            config = stack.enter_context(open_pipe())
            ready = stack.enter_context(open_pipe())
            config.fill(encode_config(plan.config))
            async with _ended_on_error(plan.folder, self._spawn(plan, (config.reader, ready.writer), group, lease)):
                config.close_reader()
                ready.close_writer()
                await self._wait_for_agent(plan.folder, ready.reader)
            return config.detach_writer() if self._settings.ends_with_driver else None

    def _spawn(self, plan: Plan, pipes: tuple[int, int], group: Group | None, lease: Lease) -> int:
        folder = plan.folder
        uid_lock = lease.lock if lease.own else None
        with ExitStack() as stack:
            lock, status, output = open_files(folder, stack)
            seccomp = stack.enter_context(memory_file(self._filter))
            memory = stack.enter_context(open_events(group)) if group else None
            cgroup_fds = stack.enter_context(open_cgroup_fds(group))
            directories = plan.mounts.host_directories
            descriptors = Descriptors(lock, status, seccomp, *pipes, memory, directories, cgroup_fds, uid_lock)
            bwrap = (*sandbox_identity(self._settings, lease.uid), self._view.bwrap[-1])
            arguments = sandbox_arguments(
                replace(self._view, bwrap=bwrap), plan.mounts, descriptors, self._settings.ends_with_driver
            )
            return launch([*(group.join_command() if group else []), *arguments], output, descriptors.all())

    async def _wait_for_agent(self, folder: Folder, reader: int) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                message = parse(await read_object(reader))
        except TimeoutError:
            raise failed(folder, f"its agent did not listen within {self._settings.start_timeout:g} s") from None
        if message.get("ready") is not True:
            raise failed(folder, str(message.get("error") or "its agent ended at once"))


def note_uid(record: Record, uid: int) -> None:
    """Note a sandbox's uid on the host in its record."""
    record.sandbox.enforced["host_uid"] = str(uid)


def make_folder(folder: Folder, lease: Lease) -> None:
    """Make a sandbox's directories on the host."""
    folder.root.mkdir()
    folder.root.chmod(0o711 if os.geteuid() == 0 else 0o700)
    for inner in (folder.workspace, folder.sockets):
        inner.mkdir(exist_ok=True)
        inner.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(inner, lease.uid, lease.gid)


def open_files(folder: Folder, stack: ExitStack) -> tuple[int, int, int]:
    """Open a new sandbox's lock, which is taken, its status and its log until the stack closes."""
    lock = stack.enter_context(_opened(folder.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return lock, stack.enter_context(_opened(folder.status, append)), stack.enter_context(_opened(folder.log, append))


def launch(arguments: list[str], output: int, pass_fds: tuple[int, ...]) -> int:
    """Start bwrap in a session of its own and return its pidfd."""
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=pass_fds,
        cwd="/",
        env={},
        start_new_session=True,
        umask=0o022,
    )
    # It may outlive this process; it is reaped by its pidfd, not by this object.
    process.returncode = 0
    return os.pidfd_open(process.pid)


@asynccontextmanager
async def _ended_on_error(folder: Folder, monitor: int) -> AsyncGenerator[None]:
    """End a sandbox and its monitor if the block fails or is cancelled."""
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
    """A pipe's two ends; -1 is one that was closed or detached."""

    reader: int
    writer: int

    @staticmethod
    def new() -> Pipe:
        """Return a new pipe."""
        return Pipe(*os.pipe2(os.O_CLOEXEC))

    def fill(self, data: bytes) -> None:
        """Write data that fits into the pipe, without waiting for the reader."""
        if len(data) > PIPE_BYTES:
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, CONFIG_BYTES)
        os.write(self.writer, data)

    def close_reader(self) -> None:
        """Close this process's copy of the end."""
        os.close(self.reader)
        self.reader = -1

    def close_writer(self) -> None:
        """Close this process's copy of the end."""
        os.close(self.writer)
        self.writer = -1

    def detach_writer(self) -> int:
        """Return the writer, which the caller closes."""
        writer, self.writer = self.writer, -1
        return writer

    def close(self) -> None:
        """Close the ends that are open."""
        ends, self.reader, self.writer = (self.reader, self.writer), -1, -1
        for descriptor in ends:
            if descriptor >= 0:
                os.close(descriptor)


@contextmanager
def open_pipe() -> Generator[Pipe]:
    """Yield a pipe, whose ends are closed when the block ends."""
    pipe = Pipe.new()
    try:
        yield pipe
    finally:
        pipe.close()


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_events(group: Group) -> Generator[int | None]:
    """Yield a descriptor of a group's count of out-of-memory kills, if memory is limited."""
    descriptor = group.open_events()
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def open_cgroup_fds(group: Group | None) -> Generator[tuple[int, ...]]:
    """Yield descriptors by which a process moves itself into a group's limits; none without a group."""
    cgroup_fds = group.open_cgroup_fds() if group else []
    try:
        yield tuple(cgroup_fds)
    finally:
        for fd in cgroup_fds:
            os.close(fd)


@contextmanager
def memory_file(data: bytes) -> Generator[int]:
    """Yield a descriptor of a file in memory, at its start: each reader needs one of its own."""
    descriptor = os.memfd_create("data", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


async def read_object(reader: int) -> bytes:
    """Return a JSON object with a line end from a pipe, or what came until it was closed."""
    data = b""
    while not data.endswith(b"}\n") and len(data) < READY_BYTES:
        await readable(reader)
        part = os.read(reader, 4096)
        if not part:
            break
        data += part
    return data


def parse(line: bytes) -> dict[str, object]:
    """Return a JSON object, empty if the line is not one."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, object]", message) if isinstance(message, dict) else {}


def failed(folder: Folder, why: str) -> SandboxStartFailed:
    """Return the error of a sandbox that did not start, with the end of its log."""
    detail = folder.tail(TAIL_BYTES)[0].decode("utf-8", "replace").strip()
    return SandboxStartFailed(f"{folder.sandbox_id} could not be started: {why}", {"detail": detail or why})
