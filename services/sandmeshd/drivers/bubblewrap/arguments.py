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
"""Where a zygote sees the directories of all sandboxes of its mesh; what it forks hides them."""

IN_MEMORY = (("/tmp", "1777"), ("/dev/shm", "1777"), (HOME, "0700"))  # noqa: S108 - inside


@dataclass(frozen=True)
class View:
    """What all sandboxes of a driver are made from; `bwrap` runs it, as the sandboxes' uid."""

    bwrap: tuple[str, ...]
    system: tuple[str, ...]
    interpreter: Interpreter
    scratch_bytes: int

    def root(self, scratch_bytes: int = 0) -> list[str]:
        """Give the start of a command line: namespaces, the system, and file systems in memory, smaller where said."""
        size = ("--size", str(min(scratch_bytes or self.scratch_bytes, self.scratch_bytes)))
        folders = [part for name in FOLDERS for part in ("--perms", "0755", "--dir", name)]
        memory = [part for path, mode in IN_MEMORY for part in (*size, "--perms", mode, "--tmpfs", path)]
        system = (*folders, *self.system, *self.interpreter.binds)
        return [*self.bwrap, *NAMESPACES, *system, "--proc", "/proc", "--dev", "/dev", *memory]


@dataclass(frozen=True)
class Mounts:
    """What one sandbox sees beside the system."""

    environment: Path
    home_files: tuple[str, ...]
    agent: Path
    mcp: Path
    workspace: Path
    sockets: Path
    disk_bytes: int = 0
    """The size of a workspace in memory; 0: it is on the disk."""
    scratch_bytes: int = 0
    """The most that each other file system in memory holds, where memory is limited; 0: what the view says."""
    workspace_fd: int | None = None
    """The directory of the host that is the workspace, open; None: the sandbox's own is."""

    def arguments(self) -> list[str]:
        """Give bwrap's arguments for them."""
        return [*self.shared(), *self._workspace(), "--bind", str(self.sockets), SOCKETS]

    def shared(self) -> list[str]:
        """Give bwrap's arguments for what other sandboxes have too."""
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
    """What a sandbox's bwrap inherits; the agent gets `lock`, `config`, `ready` and `memory` of it."""

    lock: int
    status: int
    seccomp: int
    config: int
    ready: int
    memory: int | None = None
    """Counts processes ended for want of memory, where memory has a limit."""
    workspace: int | None = None
    """The directory of the host that is the workspace, which bwrap closes."""
    doors: tuple[int, ...] = ()
    """Let what the zygote forks move itself to where limits hold."""

    def all(self) -> tuple[int, ...]:
        """Give them as the descriptors to pass on."""
        some = [fd for fd in (self.memory, self.workspace) if fd is not None]
        return (self.lock, self.status, self.seccomp, self.config, self.ready, *some, *self.doors)


def sandbox_arguments(view: View, mounts: Mounts, passed: Descriptors, ends_with_parent: bool) -> list[str]:
    """Give the command line that starts a sandbox's agent as its PID 1."""
    return [
        *view.root(mounts.scratch_bytes),
        *mounts.arguments(),
        *(["--die-with-parent"] if ends_with_parent else []),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE),
        *("--json-status-fd", str(passed.status), "--seccomp", str(passed.seccomp), "--as-pid-1", "--"),
        *(str(view.interpreter.executable), "-I", "-S", AGENT),
        *("--config-fd", str(passed.config), "--ready-fd", str(passed.ready)),
        *([] if passed.memory is None else ["--memory-fd", str(passed.memory)]),
        *(["--cgroup-fds", ",".join(map(str, passed.doors))] if passed.doors else []),
    ]


def zygote_arguments(view: View, mounts: Mounts, passed: tuple[int, int], ends_with_parent: bool) -> list[str]:
    """Give the command line that starts a zygote; passed are its control socket and the agents' seccomp program."""
    control, seccomp = passed
    folders, sockets = mounts.workspace.parents[1], mounts.sockets.parent
    return [
        *view.root(),
        *mounts.shared(),
        *("--bind", str(folders), FOLDERS_OF_ALL, "--bind", str(sockets), SOCKETS_OF_ALL),
        *("--perms", "0755", "--dir", WORKSPACE, "--perms", "0755", "--dir", SOCKETS),
        *(["--die-with-parent"] if ends_with_parent else []),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--seccomp", str(seccomp), "--"),
        *(str(view.interpreter.executable), "-I", "-S", AGENT, "--zygote-fd", str(control)),
    ]


def warm_up_arguments(view: View, environment: Path, home: Path, statement: str) -> list[str]:
    """Give the command line that runs a statement with an environment's Python, confined, its home on the host."""
    return [
        *view.root(),
        *("--ro-bind", str(environment), ENVIRONMENT, "--bind", str(home), HOME),
        *("--die-with-parent", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--setenv", "HOME", HOME),
        *("--", f"{ENVIRONMENT}/bin/python", "-c", statement),
    ]


def probe_arguments(view: View, seccomp: int) -> list[str]:
    """Give a command line that shows whether sandboxes can be made: the same namespaces, and a program that ends."""
    ends = ["--remount-ro", "/", "--seccomp", str(seccomp), "--"]
    return [*view.root(), *ends, str(view.interpreter.executable), "-I", "-S", "-c", "pass"]
