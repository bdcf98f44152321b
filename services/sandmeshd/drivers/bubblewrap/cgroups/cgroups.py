"""Control groups of sandboxes: limits of memory, processor time and processes, as far as this machine allows them.

A sandbox with such a limit gets its own group with two inside: `agent`, in which all of it is started, and `user`,
where the limits apply. What the zygote forks moves itself there before it runs user code, by a descriptor that no user
code has. An out-of-memory kill thus ends user code, and neither agent nor zygote, whatever fills the memory.

The folder of the sandbox names its groups before they are created, so that after a kill at any time a deletion or the
next start of the driver finds and removes them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from sandmesh.errors import CapabilityMissing, InternalError
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.paths import MeshPaths

AGENT, USER = "agent", "user"
AGENT_BYTES = 512 << 20
"""The memory of the agent, for arguments and output of calls in progress, besides user code's."""

JOIN = (
    *("/bin/sh", "-c"),
    'while [ "$1" != -- ]; do echo 0 > "$1" || exit 70; shift; done; shift; exec "$@"',
    "join",
)
"""Joins the groups whose process files come first, up to `--`, and executes the rest."""

ENTER = "echo 0 >&0 && exec cat /proc/self/cgroup"
"""Joins a group by the descriptor that is its input, and prints its groups."""

REMOVAL_SECONDS = 3.0
POLL_SECONDS = 0.005

log = structlog.get_logger()


@dataclass(frozen=True)
class GroupLimits:
    """The limits of user code; 0 is none. `spare_bytes` is memory that the agent may use beyond its own."""

    memory_bytes: int = 0
    cpu_millis: int = 0
    pids: int = 0
    spare_bytes: int = 0

    def controllers(self) -> tuple[str, ...]:
        """Return the controllers that the limits require."""
        limits = {"memory": self.memory_bytes, "cpu": self.cpu_millis, "pids": self.pids}
        return tuple(name for name, value in limits.items() if value)


@dataclass(frozen=True)
class CgroupUsage:
    """The resource usage of a sandbox's user code, as far as its group counts it."""

    memory_bytes: int
    processes: int
    throttled_periods: int
    out_of_memory_kills: int


class Hierarchy(Protocol):
    """A version of control groups, on this machine."""

    version: str
    """As capabilities report it."""
    events: str
    """The file that counts out-of-memory kills, in a line `oom_kill N`."""

    def bases(self) -> Iterator[Mapping[str, Path]]:
        """Yield candidate parents of new groups, by controller, the best first."""
        ...

    def prepare(self, folder: Path, controllers: tuple[str, ...]) -> None:
        """Enable these controllers for the groups in a folder."""
        ...

    def settings(self, limits: GroupLimits) -> Iterator[tuple[str, str, str]]:
        """Yield what enforces the limits: controller, file, text."""
        ...

    def usage(self, folders: Mapping[str, Path]) -> CgroupUsage:
        """Return a group's usage, by its controllers' folders."""
        ...


@dataclass(frozen=True)
class Group:
    """One sandbox's groups, by controller."""

    folders: Mapping[str, Path]
    hierarchy: Hierarchy

    def join_command(self, inner: str = AGENT) -> list[str]:
        """Return the start of a command line that runs the rest in the group, beside the agent or in the limits."""
        return [*JOIN, *(str(path / inner / "cgroup.procs") for path in self._distinct()), "--"]

    def join(self, pid: int, inner: str = AGENT) -> None:
        """Move a process into the group, beside the agent or into the limits; what it forks from now on follows.

        Raises:
            ProcessLookupError: The process has ended.
            InternalError: It cannot be moved.
        """
        for path in self._distinct():
            _write(path / inner / "cgroup.procs", str(pid))

    def open_cgroup_fds(self) -> list[int]:
        """Return descriptors; a process that writes "0" to each moves itself into the limits."""
        flags = os.O_WRONLY | os.O_CLOEXEC
        return [os.open(path / USER / "cgroup.procs", flags) for path in self._distinct()]

    def open_events(self) -> int | None:
        """Return a descriptor of the count of out-of-memory kills, None if memory is not limited."""
        if "memory" not in self.folders:
            return None
        return os.open(self.folders["memory"] / USER / self.hierarchy.events, os.O_RDONLY | os.O_CLOEXEC)

    def usage(self) -> CgroupUsage:
        """Return user code's usage."""
        return self.hierarchy.usage({name: path / USER for name, path in self.folders.items()})

    def _distinct(self) -> list[Path]:
        return list(dict.fromkeys(self.folders.values()))


class Groups:
    """The control groups that a mesh can use on this machine, probed once."""

    def __init__(self, paths: MeshPaths, hierarchies: tuple[Hierarchy, ...], identity: Sequence[str] = ()) -> None:
        """Probe what works; `identity` is the start of a command line that runs the rest as the sandboxes' uid."""
        self._identity = identity
        key = hashlib.sha256(str(paths.node_state).encode()).hexdigest()[:10]
        self._prefix = f"sandmesh-{paths.mesh_id[:40]}-{key}."
        self._hierarchy: Hierarchy | None = None
        self._bases: Mapping[str, Path] = {}
        for hierarchy in hierarchies:
            self._probe(hierarchy)

    def _probe(self, hierarchy: Hierarchy) -> None:
        for bases in hierarchy.bases():
            usable = {name: base for name, base in bases.items() if self._works(hierarchy, name, base)}
            if len(usable) > len(self._bases):
                self._hierarchy, self._bases = hierarchy, usable

    def _works(self, hierarchy: Hierarchy, name: str, base: Path) -> bool:
        """Return whether a limit can be set and a sandbox's process can join it, by trying both."""
        own = f"{self._prefix}.probe-{os.getpid()}"
        group = Group({name: base / own}, hierarchy)
        cgroup_fds: list[int] = []
        try:
            _make(group, GroupLimits(**{_FIELDS[name]: _PROBE_VALUES[name]}))
            cgroup_fds = group.open_cgroup_fds()
            command = [*group.join_command(), *self._identity, "/bin/sh", "-c", ENTER]
            done = subprocess.run(command, capture_output=True, check=True, stdin=cgroup_fds[0])
            return f"{own}/{USER}".encode() in done.stdout
        except (OSError, subprocess.SubprocessError, InternalError):
            return False
        finally:
            for fd in cgroup_fds:
                os.close(fd)
            for path in group.folders.values():
                _remove(path)

    @property
    def enforceable(self) -> dict[str, str]:
        """The limits that can be enforced among memory, cpu and pids, and what enforces them."""
        version = self._hierarchy.version if self._hierarchy else ""
        return dict.fromkeys(self._bases, version)

    def make(self, folder: Folder, limits: GroupLimits) -> Group | None:
        """Create a sandbox's groups; return None if no limit requires one.

        Raises:
            CapabilityMissing: The machine's own groups do not allow a limit; `facts["needs"]` names it.
        """
        chosen = {name: self._bases[name] for name in limits.controllers() if name in self._bases}
        if self._hierarchy is None or not chosen:
            return None
        name = self._prefix + folder.sandbox_id
        group = Group({controller: base / name for controller, base in chosen.items()}, self._hierarchy)
        folder.groups.write_text("".join(f"{path}\n" for path in dict.fromkeys(group.folders.values())))
        try:
            _make(group, limits)
        except OSError as error:
            needs = ", ".join(chosen)
            message = f"this machine does not allow the limits of {needs} ({error}): request lower ones"
            raise CapabilityMissing(message, {"needs": needs}) from None
        return group

    def find(self, folder: Folder) -> Group | None:
        """Return the groups of a sandbox, None if it has none."""
        own = [path for path in _listed(folder) if path.name.startswith(self._prefix) and path.is_dir()]
        existing = {name: path for name, base in self._bases.items() for path in own if path.parent == base}
        return Group(existing, self._hierarchy) if self._hierarchy and existing else None

    async def sweep(self, living: Iterable[Folder]) -> None:
        """Remove the groups of this mesh that belong to none of these sandboxes."""
        kept = {path for folder in living for path in _listed(folder)}
        for base in dict.fromkeys(self._bases.values()):
            for path in base.glob(f"{self._prefix}*"):
                if path not in kept:
                    log.info("a group without its sandbox is removed", group=str(path))
                    await _clear(path)

    async def sweep_where(self, is_left: Callable[[str], bool]) -> None:
        """Remove this mesh's groups of whose id `is_left` holds, and kill what still runs in them."""
        for base in dict.fromkeys(self._bases.values()):
            for path in base.glob(f"{self._prefix}*"):
                if is_left(path.name.removeprefix(self._prefix)):
                    await _clear(path)


_FIELDS = {"memory": "memory_bytes", "cpu": "cpu_millis", "pids": "pids"}
_PROBE_VALUES = {"memory": 64 << 20, "cpu": 100, "pids": 16}


async def remove_groups(folder: Folder) -> None:
    """Remove a sandbox's control groups, and kill what still runs in them."""
    for path in _listed(folder):
        await _clear(path)


def _listed(folder: Folder) -> list[Path]:
    """Return the directories of a sandbox's groups, as its folder names them."""
    try:
        return [Path(line) for line in folder.groups.read_text().splitlines()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _make(group: Group, limits: GroupLimits) -> None:
    controllers = tuple(group.folders)
    for path in dict.fromkeys(group.folders.values()):
        group.hierarchy.prepare(path.parent, controllers)
        path.mkdir(exist_ok=True)
        group.hierarchy.prepare(path, controllers)
        for inner in (AGENT, USER):
            (path / inner).mkdir(exist_ok=True)
    for controller, file, text in group.hierarchy.settings(limits):
        if controller in group.folders:
            (group.folders[controller] / USER / file).write_text(text)
    if "memory" in group.folders:
        agent_limits = GroupLimits(memory_bytes=AGENT_BYTES + limits.spare_bytes)
        for _, file, text in group.hierarchy.settings(agent_limits):
            (group.folders["memory"] / AGENT / file).write_text(text)


async def _clear(path: Path) -> None:
    # A killed process leaves its group a little after it was reaped, without an event.
    for _ in range(int(REMOVAL_SECONDS / POLL_SECONDS)):
        if _remove(path):
            return
        for inner in (AGENT, USER):
            for pid in _members(path / inner):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(POLL_SECONDS)
    raise InternalError(f"the control group {path} cannot be removed: processes in it do not end", changed=True)


def _remove(path: Path) -> bool:
    """Remove a sandbox's groups at one place; return False if they still have processes."""
    try:
        for inner in (path / AGENT, path / USER, path):
            with suppress(FileNotFoundError):
                inner.rmdir()
    except OSError:
        return False
    return True


def _members(path: Path) -> list[int]:
    try:
        return sorted(int(line) for line in (path / "cgroup.procs").read_text().split())
    except (FileNotFoundError, OSError):
        return []


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except ProcessLookupError:
        raise
    except OSError as error:
        raise InternalError(f"a process could not be put into {file.parent}: {error.strerror}", changed=True) from None
