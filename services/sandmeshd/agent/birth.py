"""The namespaces that user code lives in, and the zygote as their first process.

The agent forks while it has one thread and has read no secret. The child waits for what it needs to know, moves into
user, mount and pid namespaces of its own, hides what is not user code's, gives up every privilege and becomes the
zygote's program under the template's interpreter.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from pathlib import Path
from typing import Any, NoReturn

from sandmeshd.agent.inside import syscalls

_PROGRAM = str(Path(__file__).parent / "inside" / "__main__.py")
_LARGEST_MESSAGE = 1 << 20


def fork_zygote() -> socket.socket:
    """Fork the process that becomes the zygote once `describe` was sent on the socket that is given back."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_MESSAGE)
    if os.fork() == 0:
        ours.close()
        _be_born(theirs)
    theirs.close()
    return ours


def describe(python: str, environment: dict[str, str], hidden: str, seccomp: bytes) -> bytes:
    """Give the message that lets the zygote be born."""
    told = {"python": python, "environment": environment, "hidden": hidden}
    return json.dumps({**told, "seccomp": base64.b64encode(seccomp).decode()}).encode()


def _be_born(control: socket.socket) -> NoReturn:
    try:
        _settle(control)
        told = json.loads(control.recv(_LARGEST_MESSAGE) or "null")
        if told is not None:
            _enter_namespaces()
            _hide(told["hidden"])
            _give_up_privileges(base64.b64decode(told["seccomp"]))
            _become_zygote(control, told)
    except (OSError, ValueError) as error:
        control.send(json.dumps({"error": f"user code's namespaces could not be made: {error}"}).encode())
    finally:
        os._exit(1)


def _settle(control: socket.socket) -> None:
    """Keep the socket and the log (standard error) alone; the agent's other descriptors are none of user code's."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(nothing, target)
    syscalls.close_all_but([0, 1, 2, control.fileno()])


def _enter_namespaces() -> None:
    uid, gid = os.getuid(), os.getgid()
    # Its own files in /proc belong to root while a process is not dumpable.
    syscalls.set_dumpable(True)
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    if os.fork() != 0:
        os._exit(0)
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    quiet = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", "/proc", "proc", quiet)
    _write("/proc/sys/user/max_user_namespaces", "0")
    syscalls.mount("/proc/sys", "/proc/sys", "", syscalls.MS_BIND | syscalls.MS_REC)
    syscalls.mount("none", "/proc/sys", "", syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | quiet)


def _hide(directory: str) -> None:
    if directory:
        flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
        syscalls.mount("hidden", directory, "tmpfs", flags, "size=4k,mode=0555")


def _give_up_privileges(seccomp: bytes) -> None:
    syscalls.drop_capabilities()
    syscalls.forbid_new_privileges()
    syscalls.install_filter(seccomp)


def _become_zygote(control: socket.socket, told: dict[str, Any]) -> NoReturn:
    control.set_inheritable(True)
    arguments = [told["python"], "-I", _PROGRAM, str(control.fileno())]
    os.execve(told["python"], arguments, told["environment"])  # noqa: S606 - no shell is wanted


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
