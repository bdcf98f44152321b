"""The system calls that a sandbox's processes may not make.

Two programs: one that bwrap loads for the agent, which must still make the nested namespaces of user code, and one that
the agent loads for user code on top. They deny what Docker's default profile denies, and what the namespaces would
otherwise allow again; all else passes. See seccomp(2) and https://docs.docker.com/engine/security/seccomp/.
"""

from __future__ import annotations

import errno
import os
import termios
from dataclasses import dataclass
from types import ModuleType

from sandmesh.errors import RuntimeUnavailable

FIX = "pip install 'sandmesh[local]' and install the system's library libseccomp2 (libseccomp)"

ALWAYS = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("keyctl", "add_key", "request_key", "open_by_handle_at", "name_to_handle_at", "fanotify_init"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module"),
    *("chroot", "pivot_root", "swapon", "swapoff", "reboot", "quotactl", "quotactl_fd", "acct", "syslog"),
    *("settimeofday", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64", "adjtimex", "stime"),
    *("setdomainname", "iopl", "ioperm", "modify_ldt", "lookup_dcookie", "nfsservctl", "uselib", "ustat", "sysfs"),
    *("vhangup", "vm86", "vm86old", "mbind", "set_mempolicy", "migrate_pages", "move_pages", "_sysctl"),
    *("set_mempolicy_home_node", "vmsplice"),
)
"""Denied to the agent too."""

NESTING = (
    *("mount", "umount", "umount2", "mount_setattr", "move_mount", "open_tree", "open_tree_attr"),
    *("fsopen", "fsmount", "fsconfig", "fspick", "statmount", "listmount", "unshare", "setns", "sethostname"),
)
"""Denied only to user code."""

NEWER = {
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "set_mempolicy_home_node": 450,
    "statmount": 457,
    "listmount": 458,
    "open_tree_attr": 467,
}
"""Numbers, the same on every architecture, of calls that the machine's libseccomp may be too old to know."""

NEW_NAMESPACE = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""

TERMINAL_INPUT = (termios.TIOCSTI, termios.TIOCLINUX)
SOCKET_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6."""

QUERY_PERSONALITY = 0xFFFFFFFF
BAD_ARCHITECTURE = 2
"""SCMP_FLTATR_ACT_BADARCH: what happens to calls of another ABI (i386, x32)."""


@dataclass(frozen=True)
class SeccompFilters:
    """Programs as arrays of struct sock_filter, for this machine's architecture."""

    agent: bytes
    user: bytes
    image_agent: bytes
    """As `agent`, for a sandbox whose root is an image."""
    image_user: bytes
    """As `user`, for the same."""


def build_filters() -> SeccompFilters:
    """Compile both programs.

    Raises:
        RuntimeUnavailable: libseccomp or its Python binding is missing.
    """
    try:
        import pyseccomp  # noqa: PLC0415 - looks for the library when it is imported
    except (ImportError, RuntimeError, OSError) as error:
        raise RuntimeUnavailable(f"seccomp filters cannot be made ({error}): {FIX}", {"fix": FIX}) from None
    inside = frozenset({"chroot"})
    return SeccompFilters(
        agent=_compile(pyseccomp, nested=False),
        user=_compile(pyseccomp, nested=True),
        image_agent=_compile(pyseccomp, nested=False, allowed=inside),
        image_user=_compile(pyseccomp, nested=True, allowed=inside),
    )


def _compile(library: ModuleType, nested: bool, allowed: frozenset[str] = frozenset()) -> bytes:
    program = library.SyscallFilter(library.ALLOW)
    program.set_attr(BAD_ARCHITECTURE, library.ERRNO(errno.EPERM))
    deny = library.ERRNO(errno.EPERM)
    for name in (*ALWAYS, *(NESTING if nested else ())):
        if name not in allowed:
            _deny(library, program, deny, name)
    _deny_arguments(library, program, deny)
    if nested:
        for flag in NEW_NAMESPACE:
            program.add_rule(deny, "clone", library.Arg(0, library.MASKED_EQ, flag, flag))
        # Its flags are in memory, which no filter can read; libraries fall back to clone.
        program.add_rule(library.ERRNO(errno.ENOSYS), "clone3")
    return _export(program)


def _deny(library: ModuleType, program: object, action: int, name: str) -> None:
    number = library.resolve_syscall(library.system_arch(), name)
    if number < 0:
        number = NEWER.get(name, -1)
    if number >= 0:
        program.add_rule(action, number)  # type: ignore[attr-defined]  # pyseccomp ships no types


def _deny_arguments(library: ModuleType, program: object, deny: int) -> None:
    add = program.add_rule  # type: ignore[attr-defined]  # pyseccomp ships no types
    for request in TERMINAL_INPUT:
        # The kernel reads 32 bits of it: the others must not make the comparison fail.
        add(deny, "ioctl", library.Arg(1, library.MASKED_EQ, 0xFFFFFFFF, request))
    add(deny, "personality", library.Arg(0, library.NE, QUERY_PERSONALITY))
    # As a kernel without them answers: libraries that look for interfaces by netlink then do without.
    unknown = library.ERRNO(errno.EINVAL)
    for family in range(max(SOCKET_FAMILIES)):
        if family not in SOCKET_FAMILIES:
            add(unknown, "socket", library.Arg(0, library.EQ, family))
    add(unknown, "socket", library.Arg(0, library.GT, max(SOCKET_FAMILIES)))


def _export(program: object) -> bytes:
    with os.fdopen(os.memfd_create("filter", os.MFD_CLOEXEC), "w+b") as memory:
        program.export_bpf(memory)  # type: ignore[attr-defined]  # pyseccomp ships no types
        memory.seek(0)
        return memory.read()
