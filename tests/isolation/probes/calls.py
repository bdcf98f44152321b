"""System calls that user code may not make."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import pty
import signal
import termios
from typing import Any

from .attempts import PROBES, Probe, probe

NEW_USER = 0x10000000
NEW_MOUNT = 0x00020000
REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
X86 = platform.machine() == "x86_64"
LIBC = ctypes.CDLL(None, use_errno=True)
ROOM = ctypes.create_string_buffer(512)


def reached(number: int, *arguments: object) -> list[str]:
    """Make a system call, and say so where the kernel did more than refuse it."""
    ctypes.set_errno(0)
    returned = LIBC.syscall(ctypes.c_long(number), *arguments)
    if returned == -1 and ctypes.get_errno() in REFUSED:
        return []
    return [f"call {number}: {returned}, {errno.errorcode.get(ctypes.get_errno(), 'no error')}"]


# System calls: name, number on x86_64, on aarch64 (-1: there is none), arguments.

CALLS: dict[str, tuple[int, int, tuple[object, ...]]] = {
    "mount": (165, 40, (b"none", b"/tmp", b"tmpfs", 0, None)),
    "umount2": (166, 39, (b"/tmp", 2)),
    "pivot_root": (155, 41, (b"/", b"/")),
    "chroot": (161, 51, (b"/",)),
    "open_tree": (428, 428, (-100, b"/", 1)),
    "move_mount": (429, 429, (-1, b"", -1, b"", 0)),
    "fsopen": (430, 430, (b"tmpfs", 0)),
    "mount_setattr": (442, 442, (-100, b"/tmp", 0, ROOM, 32)),
    "statmount": (457, 457, (None, None, 0, 0)),
    "listmount": (458, 458, (None, None, 0, 0)),
    "unshare_user": (272, 97, (NEW_USER,)),
    "unshare_mounts": (272, 97, (NEW_MOUNT,)),
    "clone3": (435, 435, (ROOM, 0)),
    "process_vm_writev": (311, 271, (0, None, 0, None, 0, 0)),
    "process_madvise": (440, 440, (-1, None, 0, 0, 0)),
    "kcmp": (312, 272, (os.getpid(), os.getpid(), 0, 0, 0)),
    "bpf": (321, 280, (0, ROOM, 0)),
    "perf_event_open": (298, 241, (ROOM, 0, -1, -1, 0)),
    "userfaultfd": (323, 282, (1,)),
    "io_uring_setup": (425, 425, (1, ROOM)),
    "io_uring_enter": (426, 426, (-1, 0, 0, 0, None)),
    "keyctl": (250, 219, (0, ctypes.c_long(-3), 0)),
    "add_key": (248, 217, (b"user", b"probe", b"x", 1, ctypes.c_long(-3))),
    "request_key": (249, 218, (b"user", b"probe", None, 0)),
    "name_to_handle_at": (303, 264, (-100, b"/", ROOM, ROOM, 0)),
    "open_by_handle_at": (304, 265, (-100, ROOM, 0)),
    "fanotify_init": (300, 262, (0, 0)),
    "kexec_load": (246, 104, (0, 0, None, 0)),
    "init_module": (175, 105, (None, 0, None)),
    "finit_module": (313, 273, (-1, None, 0)),
    "reboot": (169, 142, (0, 0, 0, None)),
    "swapon": (167, 224, (b"/none", 0)),
    "syslog": (103, 116, (10, None, 0)),
    "settimeofday": (164, 170, (None, None)),
    "clock_settime": (227, 112, (0, None)),
    "adjtimex": (159, 171, (ROOM,)),
    "sethostname": (170, 161, (b"probe", 5)),
    "setdomainname": (171, 162, (b"probe", 5)),
    "quotactl": (179, 60, (0, None, 0, None)),
    "acct": (163, 89, (b"/none",)),
    "iopl": (172, -1, (3,)),
    "modify_ldt": (154, -1, (0, ROOM, 16)),
    "personality": (135, 92, (0x0040000,)),
    "mbind": (237, 235, (None, 0, 0, None, 0, 0)),
    "move_pages": (279, 239, (0, 0, None, None, None, 0)),
    "x32_getpid": (0x40000000 | 39, -1, ()),
}


def _calling(name: str) -> Probe:
    on_x86, on_arm, arguments = CALLS[name]
    number = on_x86 if X86 else on_arm
    return lambda _: [] if number < 0 else reached(number, *arguments)


PROBES.update({name: _calling(name) for name in CALLS})


@probe
def clone_user(_: dict[str, Any]) -> list[str]:
    """A process in a new user namespace by clone, whose flags a filter can see."""
    ctypes.set_errno(0)
    pid = LIBC.syscall(ctypes.c_long(56 if X86 else 220), ctypes.c_long(NEW_USER | signal.SIGCHLD), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return [] if pid == -1 and ctypes.get_errno() in REFUSED else [f"process {pid}"]


@probe
def setns(_: dict[str, Any]) -> list[str]:
    """A change into a namespace that is there."""
    return reached(308 if X86 else 268, os.open("/proc/self/ns/uts", os.O_RDONLY), 0)


@probe
def ptrace(_: dict[str, Any]) -> list[str]:
    """Being traced, which anybody's child may ask for."""
    return reached(101 if X86 else 117, 0, 0, 0, 0)


@probe
def process_vm_readv(_: dict[str, Any]) -> list[str]:
    """Reading memory of a process of one's own, here this one."""
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(ROOM), 16)
    return reached(310 if X86 else 270, os.getpid(), vector, 1, vector, 1, 0)


@probe
def pidfd_getfd(_: dict[str, Any]) -> list[str]:
    """Taking a descriptor out of a process of one's own, here this one."""
    return reached(438, os.pidfd_open(os.getpid()), 0, 0)


@probe
def int80(_: dict[str, Any]) -> list[str]:
    """A system call of the 32-bit ABI, which has numbers of its own: getpid."""
    if not X86:
        return []
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(bytes.fromhex("b814000000cd80c3"))
    run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    answer = run()
    return [f"pid {answer}"] if answer > 0 else []


@probe
def terminal_input(_: dict[str, Any]) -> list[str]:
    """Typing into a terminal: TIOCSTI, and TIOCLINUX, which pastes."""
    _main, side = pty.openpty()
    done: list[str] = []
    for name, request in (("TIOCSTI", termios.TIOCSTI), ("TIOCLINUX", termios.TIOCLINUX)):
        try:
            fcntl.ioctl(side, request, b"x")
            done.append(name)
        except OSError as error:
            # EIO: this kernel forbids it to everybody.
            done += [] if error.errno in {*REFUSED, errno.EIO} else [f"{name}: {error}"]
    return done
