"""The start of a sandbox by its own bwrap, and what every mode of starting uses."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.bubblewrap.arguments import BwrapDescriptors, Mounts, SharedView, sandbox_arguments
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group, GroupLimits, Groups
from sandmeshd.drivers.bubblewrap.identity import UidLease, UidLeases, sandbox_identity
from sandmeshd.drivers.bubblewrap.pipes import open_pipe, parse, read_object
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.uid_map import UidMap
from sandmeshd.drivers.node.agent_config import encode_config
from sandmeshd.drivers.node.processes import end, reap, to_the_end
from sandmeshd.drivers.node.records import Folder, SpecRecord
from sandmeshd.runtime.processes.child_process import readable

TAIL_BYTES = 4096


@dataclass(frozen=True)
class Plan:
    """One sandbox to be started."""

    folder: Folder
    record: SpecRecord
    mounts: Mounts
    config: agent_pb2.AgentConfig
    limits: GroupLimits
    variables: Mapping[str, str]
    """The environment variables that all sandboxes of its zygote have; the config also has the sandbox's own."""
    owner: str = ""
    """Whose zygote spawns it: the sandbox's owner's, or empty for the one that owners share."""
    own_start: bool = False
    """Whether its template requires its own bwrap."""


Plan_contra = TypeVar("Plan_contra", bound=Plan, contravariant=True)


class StartMode(Protocol[Plan_contra]):
    """A mode of starting sandboxes."""

    async def start(self, plan: Plan_contra) -> int | None:
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
    """Starts the sandboxes of one driver, each by its own bwrap."""

    def __init__(
        self, settings: BubblewrapSettings, view: SharedView, agent_filter: bytes, groups: Groups, leases: UidLeases
    ) -> None:
        self._groups = groups
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

    async def _start(self, plan: Plan, lease: UidLease) -> int | None:
        make_folder(plan.folder, lease)
        note_uid(plan.record, lease.uid)
        plan.record.write(plan.folder)
        group = self._groups.make(plan.folder, plan.limits)
        with ExitStack() as stack:
            config = stack.enter_context(open_pipe())
            ready = stack.enter_context(open_pipe())
            uid_map = stack.enter_context(closing(UidMap(self._settings, wanted=lease.is_subordinate)))
            config.fill(encode_config(plan.config))
            pipes = (config.reader, ready.writer)
            async with ended_on_error(plan.folder, self._spawn(plan, pipes, group, lease, uid_map.theirs())):
                config.close_reader()
                ready.close_writer()
                uid_map.close_theirs()
                await self._map(plan.folder, uid_map)
                await wait_for_agent(plan.folder, ready.reader, self._settings.start_timeout)
            return config.detach_writer() if self._settings.ends_with_driver else None

    async def _map(self, folder: Folder, uid_map: UidMap) -> None:
        try:
            await uid_map.write()
        except OSError as error:
            raise failed(folder, f"its uids could not be mapped: {error}") from None

    def _spawn(
        self, plan: Plan, pipes: tuple[int, int], group: Group | None, lease: UidLease, uid_map: tuple[int, ...]
    ) -> int:
        folder = plan.folder
        uid_lock = lease.lock if lease.own else None
        with ExitStack() as stack:
            lock, status, output = open_files(folder, stack)
            seccomp = stack.enter_context(memory_file(self._filter))
            memory = stack.enter_context(open_events(group)) if group else None
            cgroup_fds = stack.enter_context(open_cgroup_fds(group))
            directories = plan.mounts.host_directories
            descriptors = BwrapDescriptors(
                lock, status, seccomp, *pipes, memory, directories, cgroup_fds, uid_lock, uid_map
            )
            bwrap = (*sandbox_identity(self._settings, lease.uid), self._view.bwrap[-1])
            view, uid = replace(self._view, bwrap=bwrap), lease.own if lease.is_subordinate else 0
            arguments = sandbox_arguments(view, plan.mounts, descriptors, self._settings.ends_with_driver, uid)
            return launch([*(group.join_command() if group else []), *arguments], output, descriptors.all())


async def wait_for_agent(folder: Folder, reader: int, seconds: float) -> dict[str, object]:
    """Return what a sandbox's agent says at the other end of a pipe once it listens.

    Raises:
        SandboxStartFailed: It does not within so many seconds, or says why it cannot.
    """
    try:
        async with asyncio.timeout(seconds):
            message = parse(await read_object(reader))
    except TimeoutError:
        raise failed(folder, f"its agent did not listen within {seconds:g} s") from None
    if message.get("ready") is not True:
        raise failed(folder, str(message.get("error") or "its agent ended immediately"))
    return message


def note_uid(record: SpecRecord, uid: int) -> None:
    """Note a sandbox's uid on the host in its record."""
    record.sandbox.enforced["host_uid"] = str(uid)


def make_folder(folder: Folder, lease: UidLease) -> None:
    """Make a sandbox's directories on the host.

    One with a subordinate uid gets workspace and home when that is mapped. This user stays in the group of both, to
    remove what it can without that map, and the directory of the socket is open to all who can pass the mesh's own.
    """
    folder.root.mkdir()
    folder.root.chmod(0o711)
    for inner, mode in ((folder.workspace, 0o770), (folder.home, 0o770), (folder.sockets, 0o777)):
        inner.mkdir(exist_ok=True)
        inner.chmod(mode if lease.is_subordinate else 0o700)
        if os.geteuid() == 0:
            os.chown(inner, lease.uid, lease.gid)


def open_files(folder: Folder, stack: ExitStack) -> tuple[int, int, int]:
    """Open a new sandbox's lock, which is taken, its status and its log until the stack closes."""
    lock = stack.enter_context(_opened(folder.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return lock, stack.enter_context(_opened(folder.status, append)), stack.enter_context(_opened(folder.log, append))


def launch(arguments: list[str], output: int, pass_fds: tuple[int, ...]) -> int:
    """Start bwrap in a new session and return its pidfd."""
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
async def ended_on_error(folder: Folder, monitor: int) -> AsyncGenerator[None]:
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
    """Yield a descriptor of a file in memory, at its start: each reader needs its own."""
    descriptor = os.memfd_create("data", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def failed(folder: Folder, why: str) -> SandboxStartFailed:
    """Return the error of a sandbox that did not start, with the end of its log."""
    detail = folder.tail(TAIL_BYTES)[0].decode("utf-8", "replace").strip()
    return SandboxStartFailed(f"{folder.sandbox_id} could not be started: {why}", {"detail": detail or why})
