"""The namespaces of one sandbox, made by a process that the agents' zygote forked for it.

That process moves into namespaces of the sandbox's own and forks the sandbox's PID 1; this one mounts what is the
sandbox's, hides what is others', has the nursery make user code's side, and becomes the agent.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sandmeshd.agent.boot import service as serving
from sandmeshd.agent.processes.namespaces import control_sockets
from sandmeshd.agent.userland import syscalls
from sandmeshd.agent.userland import walls as nesting
from sandmeshd.agent.userland.nursery import FURNISHED, NAMESPACES

_OTHERS = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWCGROUP
)
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
BIRTH = struct.Struct("=ii")
"""What tells the zygote of a birth: the pid that it forked, and that of the sandbox's PID 1."""


@dataclass(frozen=True)
class View:
    """What all sandboxes of a zygote have of their own; all else is as the zygote sees it, read-only."""

    memory: list[tuple[str, str]]
    """Mount points of file systems in memory, each with its mode."""
    size: int
    """The bytes that each of them holds."""
    seeds: list[tuple[str, str]]
    """Files that are shown at another place too: from where, and where."""
    hidden: list[str]
    """What holds other sandboxes' directories: made read-only, the last of them covered."""


@dataclass(frozen=True)
class Given:
    """The descriptors of one sandbox. PID 1 keeps `lock` for as long as it lives."""

    lock: int
    log: int
    config: int
    driver: int
    memory: int = -1
    """What counts processes ended for want of memory; negative where memory has no limit."""


@dataclass(frozen=True)
class Own:
    """What one sandbox mounts of its own."""

    binds: list[tuple[str, str]]
    """Directories: from where, and where."""
    memory: list[tuple[str, str, int]]
    """File systems in memory: where, mode, bytes."""
    scratch: int
    """The most bytes that each file system in memory of the view holds here; 0: what the view says."""


def be_sandbox(view: View, own: Own, given: Given, births: int, nursery: int) -> NoReturn:
    """Turn this fresh child of the zygote into what starts a sandbox."""
    try:
        _settle(given, births, nursery)
        nesting.enter_user_namespace(_OTHERS)
        child = os.fork()
        if child:
            os.write(births, BIRTH.pack(os.getpid(), child))
            _tell(given.driver, {"init": True}, [os.pidfd_open(child)])
            os._exit(0)
        os.close(births)
        control = _have_user_side(given, nursery)
        _furnish(view, own)
        control.send(FURNISHED)
        _become_agent(given, control)
    except (OSError, ValueError) as error:
        _tell(given.driver, {"error": f"the sandbox's namespaces could not be made: {error}", "setup": True})
    finally:
        os._exit(1)


def _settle(given: Given, births: int, nursery: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, source in enumerate((nothing, given.log, given.log)):
        os.dup2(source, target)
    kept = (given.lock, given.config, given.driver, given.memory, births, nursery)
    syscalls.close_all_but([0, 1, 2, *(fd for fd in kept if fd >= 0)])


def _furnish(view: View, own: Own) -> None:
    nesting.keep_mounts_private()
    nesting.mount_processes()
    scratch = min(own.scratch or view.size, view.size)
    for target, mode, size in (*((target, mode, scratch) for target, mode in view.memory), *own.memory):
        nesting.mount_memory(target, mode, size)
    terminals = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
    syscalls.mount("devpts", "/dev/pts", "devpts", terminals, "newinstance,ptmxmode=0666,mode=620")
    for source, target in view.seeds:
        _show(source, target)
    for source, target in own.binds:
        syscalls.mount(source, target, "", syscalls.MS_BIND)
    for directory in view.hidden:
        nesting.make_read_only(directory, syscalls.MS_NOSUID | syscalls.MS_NODEV)
    nesting.hide(str(Path(view.hidden[-1]).parent))
    _bring_loopback_up()
    os.chdir("/")


def _show(source: str, target: str) -> None:
    Path(target).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    Path(target).symlink_to(source)


def _bring_loopback_up() -> None:
    # struct ifreq: a name of 16 bytes, then flags in a union of 24. See netdevice(7).
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH22x", b"lo", 0)
        (flags,) = struct.unpack("16xH22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))


def _have_user_side(given: Given, nursery: int) -> socket.socket:
    """Ask the nursery for the first process of user code's namespaces; give the socket to it."""
    control, theirs = control_sockets()
    opened = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES]
    with socket.socket(fileno=nursery) as asked, theirs:
        socket.send_fds(asked, [b"join"], [*opened, theirs.fileno(), 2, given.driver])
    for fd in opened:
        os.close(fd)
    return control


def _become_agent(given: Given, control: socket.socket) -> None:
    syscalls.set_dumpable(False)
    syscalls.set_name("sandmesh-agent")
    syscalls.drop_capabilities()
    code = serving.serve(serving.Given(given.config, given.driver, given.memory), control)
    # As PID 1 its end is everybody's: worker threads are not waited for.
    os._exit(code)


def _tell(driver: int, message: dict[str, Any], fds: list[int] | None = None) -> None:
    with socket.socket(fileno=os.dup(driver)) as told:
        socket.send_fds(told, [json.dumps(message).encode() + b"\n"], fds or [])
