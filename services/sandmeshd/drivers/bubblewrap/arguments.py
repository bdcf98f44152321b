"""The command lines of bwrap."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandmeshd.drivers.node.agent_config import AGENT, ENVIRONMENT, HOME, MCP, USER, USER_ID, WORKSPACE
from sandmeshd.drivers.node.interpreter import Interpreter

NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"),
    *("--new-session", "--clearenv", "--hostname", USER, "--uid", str(USER_ID), "--gid", str(USER_ID)),
    *("--cap-drop", "ALL"),
)
FOLDERS = ("/etc", "/home", "/opt", "/run")
SOCKETS = "/run/agent"
FOLDERS_OF_ALL = "/run/others/sandboxes"
SOCKETS_OF_ALL = "/run/others/agents"
"""The directories of all sandboxes of a mesh, as a zygote sees them; in its sandboxes they are hidden."""

IN_MEMORY = (("/tmp", "1777"), ("/dev/shm", "1777"), (HOME, "0700"))  # noqa: S108 - inside


@dataclass(frozen=True)
class View:
    """The part of the view that all sandboxes of a driver share; `bwrap` starts them, as the sandboxes' uid."""

    bwrap: tuple[str, ...]
    system: tuple[str, ...]
    interpreter: Interpreter
    scratch_bytes: int

    def root(self, scratch_bytes: int = 0, system: tuple[str, ...] | None = None) -> list[str]:
        """Return the start of a command line: namespaces, the system, and file systems in memory.

        `system` is shown in place of the host's.
        """
        size = ("--size", str(min(scratch_bytes or self.scratch_bytes, self.scratch_bytes)))
        folders = [part for name in FOLDERS for part in ("--perms", "0755", "--dir", name)]
        memory = [part for path, mode in IN_MEMORY for part in (*size, "--perms", mode, "--tmpfs", path)]
        shown = (*folders, *(self.system if system is None else system), *self.interpreter.binds)
        return [*self.bwrap, *NAMESPACES, *shown, "--proc", "/proc", "--dev", "/dev", *memory]


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

    def arguments(self) -> list[str]:
        """Return bwrap's arguments for all mounts."""
        return [*self.shared(), *self._workspace(), "--bind", str(self.sockets), SOCKETS]

    def shared(self) -> list[str]:
        """Return bwrap's arguments for the mounts that sandboxes of a zygote share."""
        home = self.environment / "home"
        seeds = [part for name in self.home_files for part in ("--ro-bind", str(home / name), f"{HOME}/{name}")]
        own = ("--ro-bind", str(self.agent), AGENT, "--ro-bind", str(self.mcp), MCP)
        return ["--ro-bind", str(self.environment), ENVIRONMENT, *seeds, *own]

    def _workspace(self) -> tuple[str, ...]:
        if self.disk_bytes:
            return ("--size", str(self.disk_bytes), "--perms", "0700", "--tmpfs", WORKSPACE)
        if self.workspace_fd is not None:
            return ("--bind-fd", str(self.workspace_fd), WORKSPACE)
        return ("--bind", str(self.workspace), WORKSPACE)


@dataclass(frozen=True)
class Descriptors:
    """The descriptors that a sandbox's bwrap inherits; the agent gets `lock`, `config`, `ready` and `memory`."""

    lock: int
    status: int
    seccomp: int
    config: int
    ready: int
    memory: int | None = None
    """The count of out-of-memory kills, if memory is limited."""
    workspace: int | None = None
    """The directory of the host that is the workspace, which bwrap closes."""
    cgroup_fds: tuple[int, ...] = ()
    """Writable process files by which what the zygote forks moves itself into the limits."""

    def all(self) -> tuple[int, ...]:
        """Return all descriptors that are present."""
        optional = [fd for fd in (self.memory, self.workspace) if fd is not None]
        return (self.lock, self.status, self.seccomp, self.config, self.ready, *optional, *self.cgroup_fds)


def sandbox_arguments(view: View, mounts: Mounts, descriptors: Descriptors, ends_with_parent: bool) -> list[str]:
    """Return the command line that starts a sandbox's agent as its PID 1."""
    return [
        *view.root(mounts.scratch_bytes, mounts.system),
        *mounts.arguments(),
        *(["--die-with-parent"] if ends_with_parent else []),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE),
        *("--json-status-fd", str(descriptors.status), "--seccomp", str(descriptors.seccomp), "--as-pid-1", "--"),
        *(str(view.interpreter.executable), "-I", "-S", AGENT),
        *("--config-fd", str(descriptors.config), "--ready-fd", str(descriptors.ready)),
        *([] if descriptors.memory is None else ["--memory-fd", str(descriptors.memory)]),
        *(["--cgroup-fds", ",".join(map(str, descriptors.cgroup_fds))] if descriptors.cgroup_fds else []),
    ]


def zygote_arguments(view: View, mounts: Mounts, descriptors: tuple[int, int], ends_with_parent: bool) -> list[str]:
    """Return the command line that starts a zygote; `descriptors` are its control socket and the seccomp program."""
    control, seccomp = descriptors
    folders, sockets = mounts.workspace.parents[1], mounts.sockets.parent
    return [
        *view.root(system=mounts.system),
        *mounts.shared(),
        *("--bind", str(folders), FOLDERS_OF_ALL, "--bind", str(sockets), SOCKETS_OF_ALL),
        *("--perms", "0755", "--dir", WORKSPACE, "--perms", "0755", "--dir", SOCKETS),
        *(["--die-with-parent"] if ends_with_parent else []),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--seccomp", str(seccomp), "--"),
        *(str(view.interpreter.executable), "-I", "-S", AGENT, "--zygote-fd", str(control)),
    ]


def warm_up_arguments(view: View, environment: Path, home: Path, statement: str) -> list[str]:
    """Return the command line that runs a statement with an environment's Python, confined, its home on the host."""
    return [
        *view.root(),
        *("--ro-bind", str(environment), ENVIRONMENT, "--bind", str(home), HOME),
        *("--die-with-parent", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--setenv", "HOME", HOME),
        *("--", f"{ENVIRONMENT}/bin/python", "-c", statement),
    ]


def probe_arguments(view: View, seccomp: int) -> list[str]:
    """Return the command line of a sandbox with the same namespaces whose program does nothing."""
    ends = ["--remount-ro", "/", "--seccomp", str(seccomp), "--"]
    return [*view.root(), *ends, str(view.interpreter.executable), "-I", "-S", "-c", "pass"]
