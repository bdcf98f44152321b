"""The command lines of bwrap."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from sandmeshd.drivers.bubblewrap.systems.host import FONTS, bind_fonts
from sandmeshd.drivers.node.agent_config import AGENT, ENVIRONMENT, HOME, MCP, USER, USER_ID, WORKSPACE
from sandmeshd.drivers.node.interpreter import Interpreter

NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"),
    *("--new-session", "--clearenv", "--hostname", USER, "--uid", str(USER_ID), "--gid", str(USER_ID)),
    *("--cap-drop", "ALL"),
)
FOLDERS = ("/etc", "/home", "/opt", "/run")
LINKS = {
    "/home/user": WORKSPACE,
    "/opt/noVNC/utils/novnc_proxy": f"{AGENT}/sandmeshd/agent/userland/desktop/novnc_proxy.py",
}
"""Where programs that were written for E2B's sandboxes find their files, and noVNC's server."""
FONT_CACHE = "home/.cache/fontconfig"
"""Where the warm-up of an environment leaves what fontconfig knows of each directory of fonts."""
SOCKETS = "/run/agent"
FOLDERS_OF_ALL = "/run/others/sandboxes"
SOCKETS_OF_ALL = "/run/others/agents"
"""The directories of all sandboxes of a mesh, as a zygote sees them; in its sandboxes they are hidden."""

_OPERANDS = {
    **dict.fromkeys(("--dir", "--tmpfs", "--proc", "--dev"), 1),
    **dict.fromkeys(("--ro-bind", "--ro-bind-try", "--bind", "--bind-try", "--dev-bind", "--symlink"), 2),
    **dict.fromkeys(("--file", "--ro-bind-data", "--bind-fd"), 2),
}
"""How many operands bwrap's options have that make something; the last is where."""

IN_MEMORY = (("/tmp", "1777"), ("/dev/shm", "1777"), (HOME, "0700"))  # noqa: S108 - inside


def memory_mounts(scratch: Iterable[str]) -> list[tuple[str, str]]:
    """Return where a sandbox has file systems in memory, each with its mode; `scratch` are its template's own."""
    return [*IN_MEMORY, *((path, "0755") for path in scratch)]


@dataclass(frozen=True)
class SharedView:
    """The part of the view that all sandboxes of a driver share; `bwrap` starts them, as the sandboxes' uid."""

    bwrap: tuple[str, ...]
    system: tuple[str, ...]
    interpreter: Interpreter
    scratch_bytes: int

    def root(self, mounts: Mounts | None = None) -> list[str]:
        """Return the start of a command line: namespaces, the system, and file systems in memory, those of `mounts`."""
        scratch_bytes = mounts.scratch_bytes if mounts else 0
        system = mounts.system if mounts else None
        size = ("--size", str(min(scratch_bytes or self.scratch_bytes, self.scratch_bytes)))
        folders = [part for name in FOLDERS for part in ("--perms", "0755", "--dir", name)]
        places = memory_mounts(mounts.scratch if mounts else ())
        memory = [part for path, mode in places for part in (*size, "--perms", mode, "--tmpfs", path)]
        links = [part for path, target in LINKS.items() for part in ("--symlink", target, path)]
        shown = (*folders, *(self.system if system is None else system), *self.interpreter.binds)
        return [*self.bwrap, *NAMESPACES, *shown, *links, "--proc", "/proc", "--dev", "/dev", *memory]


@dataclass(frozen=True)
class Mounts:
    """The mounts of one sandbox besides the system's."""

    environment: Path
    home_files: tuple[str, ...]
    agent: Path
    mcp: Path
    workspace: Path
    sockets: Path
    disk_bytes: int = 0
    """The size of a workspace in memory; 0 if it is on the disk."""
    scratch_bytes: int = 0
    """The size of each other file system in memory, if memory is limited; 0 means the view's."""
    workspace_fd: int | None = None
    """The open directory of the host that is the workspace; None if it is the sandbox's own."""
    system: tuple[str, ...] | None = None
    """The arguments for a system of the template's own; None for the view's."""
    data: tuple[tuple[Path, str], ...] = ()
    """Files of the template's that are not the system's, as the administrator's data, with the places inside."""
    scratch: tuple[str, ...] = ()
    """The template's own directories in memory."""
    home: Path | None = None
    """The sandbox's home on the disk; None if it is in memory, as where the disk is limited."""
    volumes: tuple[tuple[int, str], ...] = ()
    """Open directories of the host that are the sandbox's volumes, with the places inside."""

    @property
    def host_directories(self) -> tuple[int, ...]:
        """The open directories of the host that user code may write besides its own."""
        workspace = () if self.workspace_fd is None else (self.workspace_fd,)
        return (*workspace, *(fd for fd, _ in self.volumes))

    def arguments(self) -> list[str]:
        """Return bwrap's arguments for all mounts."""
        volumes = [part for fd, place in self.volumes for part in ("--bind-fd", str(fd), place)]
        home = () if self.home is None else ("--bind", str(self.home), HOME)
        return [*home, *self.shared(), *self._workspace(), "--bind", str(self.sockets), SOCKETS, *volumes]

    def shared(self) -> list[str]:
        """Return bwrap's arguments for the mounts that sandboxes of a zygote share."""
        home = self.environment / "home"
        seeds = [part for name in self.home_files for part in ("--ro-bind", str(home / name), f"{HOME}/{name}")]
        own = ("--ro-bind", str(self.agent), AGENT, "--ro-bind", str(self.mcp), MCP)
        data = [part for real, place in self.data for part in ("--ro-bind", str(real), place)]
        return ["--ro-bind", str(self.environment), ENVIRONMENT, *seeds, *self._fonts(), *own, *data]

    def _fonts(self) -> tuple[str, ...]:
        """Show the environment's cache of fonts as the system's, unless the template's system has one.

        A mount for all sandboxes of a zygote costs less than files in each home.
        """
        cache = self.environment / FONT_CACHE
        if str(FONTS) in (self.system or ()) or not cache.is_dir():
            return ()
        return bind_fonts(str(cache))

    def _workspace(self) -> tuple[str, ...]:
        if self.disk_bytes:
            return ("--size", str(self.disk_bytes), "--perms", "0700", "--tmpfs", WORKSPACE)
        if self.workspace_fd is not None:
            return ("--bind-fd", str(self.workspace_fd), WORKSPACE)
        return ("--bind", str(self.workspace), WORKSPACE)


@dataclass(frozen=True)
class BwrapDescriptors:
    """The descriptors that a sandbox's bwrap inherits; the agent gets `lock`, `config`, `ready` and `memory`."""

    lock: int
    status: int
    seccomp: int
    config: int
    ready: int
    memory: int | None = None
    """The count of out-of-memory kills, if memory is limited."""
    directories: tuple[int, ...] = ()
    """The directories of the host that are workspace and volumes, which bwrap closes."""
    cgroup_fds: tuple[int, ...] = ()
    """Writable process files by which what the zygote forks moves itself into the limits."""
    lease: int | None = None
    """The lock of the sandbox's uid, if it has a separate one."""
    map: tuple[int, ...] = ()
    """Those of `UidMap`, if the agent becomes that uid by itself."""

    def all(self) -> tuple[int, ...]:
        """Return all descriptors that are present."""
        optional = [fd for fd in (self.memory, self.lease) if fd is not None]
        own = (self.lock, self.status, self.seccomp, self.config, self.ready)
        return (*own, *optional, *self.directories, *self.cgroup_fds, *self.map)


def sandbox_arguments(
    view: SharedView, mounts: Mounts, descriptors: BwrapDescriptors, ends_with_parent: bool, uid: int = 0
) -> list[str]:
    """Return the command line that starts a sandbox's agent as its PID 1, which becomes `uid` unless that is 0."""
    root = view.root(mounts)
    first = len(view.bwrap) + len(NAMESPACES)
    shown = [*root[first:], *mounts.arguments()]
    return [
        *root[:first],
        *(_open_parents(shown) if uid else []),
        *shown,
        *identity_arguments(descriptors.map),
        *(["--die-with-parent"] if ends_with_parent else []),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE),
        *("--json-status-fd", str(descriptors.status), "--seccomp", str(descriptors.seccomp), "--as-pid-1", "--"),
        *(str(view.interpreter.executable), "-I", "-S", AGENT),
        *("--config-fd", str(descriptors.config), "--ready-fd", str(descriptors.ready)),
        *([] if descriptors.memory is None else ["--memory-fd", str(descriptors.memory)]),
        *(["--cgroup-fds", ",".join(map(str, descriptors.cgroup_fds))] if descriptors.cgroup_fds else []),
        *(["--become", json.dumps([uid, HOME, WORKSPACE, *mounts.scratch])] if uid else []),
    ]


def identity_arguments(uid_map: tuple[int, ...]) -> list[str]:
    """Return bwrap's arguments for what makes its sandboxes other users, given the descriptors of `UidMap`, if any.

    Where bwrap writes which process waits for its map, and where it reads that the map is written. Root has made
    sandboxes the owners of their directories; for an ordinary user only who has the map can.
    """
    if not uid_map:
        return []
    info, mapped = uid_map
    names = ["CAP_SETUID", "CAP_SETGID", *([] if os.geteuid() == 0 else ["CAP_CHOWN"])]
    capabilities = [part for name in names for part in ("--cap-add", name)]
    return ["--userns-block-fd", str(mapped), "--info-fd", str(info), *capabilities]


@dataclass(frozen=True)
class ZygoteDescriptors:
    """The descriptors that a zygote's bwrap inherits; the zygote gets `control`."""

    control: int
    seccomp: int
    map: tuple[int, ...] = ()
    """Those of `UidMap`, if its sandboxes have separate uids."""

    def all(self) -> tuple[int, ...]:
        """Return all descriptors that are present."""
        return (self.control, self.seccomp, *self.map)


def zygote_arguments(
    view: SharedView, mounts: Mounts, descriptors: ZygoteDescriptors, ends_with_parent: bool
) -> list[str]:
    """Return the command line that starts a zygote."""
    root = view.root(replace(mounts, scratch_bytes=0))
    first = len(view.bwrap) + len(NAMESPACES)
    folders, sockets = mounts.workspace.parents[1], mounts.sockets.parent
    shown = [
        *root[first:],
        *mounts.shared(),
        *("--bind", str(folders), FOLDERS_OF_ALL, "--bind", str(sockets), SOCKETS_OF_ALL),
        *("--perms", "0755", "--dir", WORKSPACE, "--perms", "0755", "--dir", SOCKETS),
    ]
    return [
        *(*root[:first], *identity_arguments(descriptors.map)),
        *_open_parents(shown),
        *shown,
        *(["--die-with-parent"] if ends_with_parent else []),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--seccomp", str(descriptors.seccomp), "--"),
        *(str(view.interpreter.executable), "-I", "-S", AGENT, "--zygote-fd", str(descriptors.control)),
    ]


def _open_parents(arguments: list[str]) -> list[str]:
    """Return bwrap's arguments that open the directories above what it is to make to all users of its namespace.

    Those that are in what it mounts are left out. By itself it makes them only for their owner.
    """
    made: list[PurePosixPath] = []
    mounted: set[PurePosixPath] = set()
    for index, option in enumerate(arguments):
        operands = _OPERANDS.get(option, 0)
        if operands:
            made.append(PurePosixPath(arguments[index + operands]))
            if option != "--dir":
                mounted.add(made[-1])
    above = {parent for path in made for parent in path.parents if len(parent.parts) > 1}
    opened = sorted(str(path) for path in above if mounted.isdisjoint({path, *path.parents}))
    return [part for path in opened for part in ("--perms", "0755", "--dir", path)]


def warm_up_arguments(view: SharedView, environment: Path, home: Path, statement: str) -> list[str]:
    """Return the command line that runs a statement with an environment's Python, confined, its home on the host."""
    return [
        *view.root(),
        *("--ro-bind", str(environment), ENVIRONMENT, "--bind", str(home), HOME),
        *("--die-with-parent", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--setenv", "HOME", HOME),
        *("--", f"{ENVIRONMENT}/bin/python", "-c", statement),
    ]


def probe_arguments(view: SharedView, seccomp: int) -> list[str]:
    """Return the command line of a sandbox with the same namespaces whose program does nothing."""
    ends = ["--remount-ro", "/", "--seccomp", str(seccomp), "--"]
    return [*view.root(), *ends, str(view.interpreter.executable), "-I", "-S", "-c", "pass"]
