"""The namespaces of one sandbox, set up by a process that borrows the memory of the agents' zygote.

That process enters namespaces of the sandbox's own and forks the sandbox's PID 1, which mounts the sandbox's own
directories, hides those of others, has the template process start user code's first process, and becomes the agent.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from sandmeshd.agent.boot import loopback, service
from sandmeshd.agent.processes.namespaces import control_sockets
from sandmeshd.agent.userland.core import isolation, syscalls
from sandmeshd.agent.userland.core.template_process import FURNISHED, NAMESPACES

_OTHERS = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWCGROUP
)
SPAWNED = struct.Struct("=ii")
"""The record that a sandbox was spawned: the pid that the zygote forked, and that of the sandbox's PID 1."""


@dataclass(frozen=True)
class ZygoteMounts:
    """The mounts that differ between sandboxes of a zygote; all else is as the zygote sees it, read-only."""

    memory: list[tuple[str, str]]
    """Mount points of file systems in memory, each with its mode."""
    size: int
    """The bytes that each of them holds."""
    seeds: list[tuple[str, str]]
    """Symbolic links: target, and path."""
    hidden: list[str]
    """The parents of all sandboxes' directories: read-only, the last of them covered."""


@dataclass(frozen=True)
class SandboxDescriptors:
    """The descriptors of one sandbox. PID 1 holds `lock` and `lease` for as long as it lives."""

    lock: int
    log: int
    config: int
    driver: int
    memory: int = -1
    """The counter of processes killed for exceeding the memory limit; negative if memory is not limited."""
    lease: int = -1
    """The lock of the sandbox's uid; negative if that is the zygote's."""

    @staticmethod
    def received(fds: list[int], *, has_uid: bool) -> SandboxDescriptors:
        """Return the descriptors of a request, in its order."""
        lease = fds.pop(4) if has_uid else -1
        lock, log, config, driver, *memory = fds
        return SandboxDescriptors(lock, log, config, driver, memory[0] if memory else -1, lease)


@dataclass(frozen=True)
class SandboxMounts:
    """The mounts of one sandbox."""

    binds: list[tuple[str, str]]
    """Directories: source, and path."""
    scratch: int
    """The most bytes of each of the view's file systems in memory here; 0: the view's own size."""
    disk: tuple[int, list[str]] = (0, [])
    """The bytes of a disk in memory, and the paths of its directories; 0: there is none."""
    uid: int = 0
    """The uid and gid of its processes; 0: the zygote's."""
    owned: tuple[str, ...] = ()
    """The zygote's directories that become that uid's."""


def start_sandbox(view: ZygoteMounts, mounts: SandboxMounts, descriptors: SandboxDescriptors, template: int) -> int:
    """Start a sandbox from the zygote, which has `template`, the socket to the template process.

    Returns: the pid of the sandbox's PID 1; 0 if there is none, of which the driver is told.
    """

    def fork_inside() -> int:
        # Agents are in a session that none of them leads: terminals that they open do not become theirs.
        os.setsid()
        user = os.getuid(), os.getgid()
        isolation.become(mounts.uid, mounts.owned)
        isolation.enter_user_namespace(_OTHERS, user)
        return syscalls.fork_bare() or _be_first(view, mounts, descriptors, template)

    try:
        child = syscalls.borrow_memory(fork_inside)
    except ChildProcessError:
        os._exit(1)
    except (OSError, ValueError) as error:
        _report_failure(descriptors.driver, error)
        child = 0
    # It is for the owner of its files in /proc while it enters namespaces; the memory is this process's.
    syscalls.set_dumpable(False)
    if child:
        _report_first(descriptors.driver, child)
    return child


def _report_first(driver: int, pid: int) -> None:
    # A driver that no longer listens has closed what the sandbox lives by, too.
    with suppress(OSError):
        first = os.pidfd_open(pid)
        try:
            report(driver, {"init": True}, [first])
        finally:
            os.close(first)


def _be_first(view: ZygoteMounts, mounts: SandboxMounts, descriptors: SandboxDescriptors, template: int) -> NoReturn:
    """Run as the sandbox's PID 1."""
    try:
        locks = (descriptors.lock, descriptors.lease)
        kept = (*locks, descriptors.config, descriptors.driver, descriptors.memory, template)
        settle(descriptors.log, [fd for fd in kept if fd >= 0])
        control = start_user_side(template, descriptors.driver, b"%d" % mounts.uid)
        _mount(view, mounts)
        control.send(FURNISHED)
        _become_agent(descriptors, control)
    except (OSError, ValueError) as error:
        _report_failure(descriptors.driver, error)
    finally:
        os._exit(1)


def _report_failure(driver: int, error: Exception) -> None:
    with suppress(OSError):
        report(driver, {"error": f"the sandbox's namespaces could not be created: {error}", "setup": True})


def settle(log: int, kept: list[int]) -> None:
    """Become a process of a sandbox, whose output is the log, and close all descriptors but those `kept`."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in enumerate((null, log, log)):
        os.dup2(source, target)
    syscalls.close_all_but([0, 1, 2, *kept])


def _mount(view: ZygoteMounts, mounts: SandboxMounts) -> None:
    isolation.keep_mounts_private()
    isolation.mount_processes()
    scratch = min(mounts.scratch or view.size, view.size)
    size, directories = mounts.disk
    on_disk = {*directories, *(target for _, target in mounts.binds)}
    for target, mode in view.memory:
        if target not in on_disk:
            isolation.mount_memory(target, mode, scratch)
    if directories:
        _mount_disk(size, directories)
    terminals = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
    syscalls.mount("devpts", "/dev/pts", "devpts", terminals, "newinstance,ptmxmode=0666,mode=620")
    for source, target in mounts.binds:
        syscalls.mount(source, target, "", syscalls.MS_BIND)
    for source, target in view.seeds:
        _link(source, target)
    for directory in view.hidden:
        isolation.make_read_only(directory, syscalls.MS_NOSUID | syscalls.MS_NODEV)
    isolation.hide(os.path.dirname(view.hidden[-1]))  # noqa: PTH120 - as below
    loopback.bring_up()
    os.chdir("/")


def _mount_disk(size: int, directories: list[str]) -> None:
    """Mount one file system in memory whose directories are at several paths, and that is seen at no other."""
    first = directories[0]
    isolation.mount_memory(first, "0700", size)
    for number, _ in enumerate(directories):
        os.mkdir(f"{first}/{number}", 0o700)  # noqa: PTH102
    # The first hides the others' sources.
    for number, target in reversed(list(enumerate(directories))):
        syscalls.mount(f"{first}/{number}", target, "", syscalls.MS_BIND)


def _link(source: str, target: str) -> None:
    # pathlib takes three times as long.
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120
    os.symlink(source, target)  # noqa: PTH211


def start_user_side(template_process: int, driver: int, data: bytes) -> socket.socket:
    """Start the first process of user code's namespaces by the template process; return the socket to it.

    `data` says whose it is, as that template process takes it.
    """
    control, theirs = control_sockets()
    opened = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES]
    with socket.socket(fileno=template_process) as request, theirs:
        socket.send_fds(request, [data], [*opened, theirs.fileno(), 2, driver])
    for fd in opened:
        os.close(fd)
    return control


def _become_agent(descriptors: SandboxDescriptors, control: socket.socket) -> None:
    syscalls.set_dumpable(False)
    syscalls.set_name("sandmesh-agent")
    syscalls.drop_capabilities()
    code = service.serve(service.AgentDescriptors(descriptors.config, descriptors.driver, descriptors.memory), control)
    # The end of PID 1 ends all processes: worker threads are not waited for.
    os._exit(code)


def report(driver: int, message: dict[str, Any], fds: list[int] | None = None) -> None:
    """Send the driver a message."""
    with socket.socket(fileno=os.dup(driver)) as connection:
        socket.send_fds(connection, [json.dumps(message).encode() + b"\n"], fds or [])
