"""The system calls that Python's os module lacks. Numbers are those of the kernel's own headers."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import struct
from functools import cache

TYPE_CHECKING = False  # as typing has it, which takes 5 ms before a container's kernel can start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18

_CLONE_VM: Final = 0x100
_CLONE_VFORK: Final = 0x4000
_WALL: Final = 0x40000000
"""Waits also for children that end without a signal."""
_BORROWED_STACK: Final = 512 << 10
"""How far below the beginning of the stack that of `borrow_memory` begins: its caller's is above."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_KEEPCAPS: Final = 8
_PR_SET_NAME: Final = 15
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_IS_SET: Final = 1
_PR_CAP_AMBIENT_RAISE: Final = 2
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522
_INSTRUCTION_BYTES: Final = 8
_IS_X86: Final = os.uname().machine == "x86_64"
_SYS_ARCH_PRCTL, _ARCH_GET_FS = 158, 0x1003
_SYS_RSEQ = 334
RSEQ_SIGNATURE: Final = 0x53053053
"""What the C library passes to rseq(2) on x86-64."""
_SYS_RT_SIGACTION: Final = {"x86_64": 13, "aarch64": 134}.get(os.uname().machine)
_SYS_SETRESUID, _SYS_SETRESGID = {"x86_64": (117, 119), "aarch64": (147, 149)}.get(os.uname().machine, (None, None))
SETS_THREADS_USER: Final = _SYS_SETRESUID is not None
"""Whether `set_thread_user` knows its system calls."""
_RESERVED_SIGNALS: Final = (32, 33)
"""SIGCANCEL and SIGSETXID of glibc, whose functions refuse to change them."""

_libc = ctypes.CDLL(None, use_errno=True)
_interpreter = ctypes.PyDLL(None)
"""The same functions, called without letting go of the interpreter."""
for _name in ("prctl", "unshare", "setns", "mount", "capset", "setfsuid", "setfsgid"):
    # Looked up where forks share it: each look-up writes to a dozen pages.
    getattr(_libc, _name)
_DEFAULT_ACTION = ctypes.create_string_buffer(32)
"""The kernel's struct sigaction of SIG_DFL, without flags and mask."""


_Work = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
"""What clone(2) of the C library calls in the child."""


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _checked(returned: int, what: str) -> None:
    if returned != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent() -> None:
    """Arrange that this process is killed when the one that forked it ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def set_dumpable(dumpable: bool) -> None:
    """Open or close this process's memory, environment and descriptors to others of the same user."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, int(dumpable), 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def fork_bare() -> int:
    """Fork without what Python does for modules that ask for it.

    That saves two thirds of a fork's time. This process must have one thread; random numbers are the same in both.
    """
    child: int = _interpreter.fork()
    if child < 0:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return child


def borrow_memory(work: Callable[[], int]) -> int:
    """Run a function in a child that shares this process's memory, while this process waits: see vfork(2).

    The child's descriptors, ids, namespaces and working directory are separate, and what it changes of Python's objects
    stays changed. So no page table is copied for what only enters namespaces and forks. What it forks has memory of its
    own. This process must have one thread. Where the C library or the processor is another one than glibc on x86-64,
    the child is an ordinary fork.

    Returns: what `work` does.

    Raises:
        OSError: The child could not be made, or `work` raised it.
        ChildProcessError: It was killed, and may have left Python's objects in any state.
    """
    returned: list[int] = []
    raised: list[Exception] = []
    if not _STACK_END:
        return _work_in_fork(work)

    def call(_: object) -> int:
        try:
            # The kernel forgets this where memory is shared, and what the child forks would run without it.
            if _SEQUENCES != (0, 0):
                _libc.syscall(_SYS_RSEQ, *map(ctypes.c_ulong, _SEQUENCES), 0, ctypes.c_uint(RSEQ_SIGNATURE))
            returned.append(work())
        except Exception as error:
            raised.append(error)
        return 0

    # Within the stack that the system and Python know of: what the child forks stays there.
    callback = _Work(call)
    stack = ctypes.c_void_p((_STACK_END - _BORROWED_STACK) & ~15)
    child = _interpreter.clone(callback, stack, _CLONE_VM | _CLONE_VFORK, None)
    if child < 0:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    os.waitpid(child, _WALL)
    if raised:
        raise raised[0]
    if not returned:
        raise ChildProcessError("a process that shared this one's memory was killed")
    return returned[0]


def _work_in_fork(work: Callable[[], int]) -> int:
    with mmap.mmap(-1, mmap.PAGESIZE) as shared:
        child = fork_bare()
        if child == 0:
            try:
                shared.madvise(mmap.MADV_DONTFORK)
                shared[:16] = struct.pack("=qq", 1, work())
            except (OSError, ValueError) as error:
                text = str(error).encode()[: mmap.PAGESIZE - 16]
                shared[: 16 + len(text)] = struct.pack("=qq", 2, len(text)) + text
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        state, value = struct.unpack("=qq", shared[:16])
        if state == 2:
            raise OSError(shared[16 : 16 + value].decode(errors="replace"))
        if state != 1:
            raise ChildProcessError("a process that was to start others was killed")
        return int(value)


def restartable_sequences(fs: int) -> tuple[int, int]:
    """Return the address and the size of what the C library has registered by rseq(2), zeros where it has not.

    `fs` is the register of x86-64 that leads to the data of the thread.
    """
    try:
        offset = ctypes.c_long.in_dll(_interpreter, "__rseq_offset").value
        size = ctypes.c_uint.in_dll(_interpreter, "__rseq_size").value
    except ValueError:
        return 0, 0
    return (fs + offset, max(size, 32)) if size else (0, 0)


def _stack_end() -> int:
    try:
        return ctypes.c_size_t.in_dll(_interpreter, "__libc_stack_end").value if _IS_X86 else 0
    except ValueError:
        return 0


def _own_sequences() -> tuple[int, int]:
    fs = ctypes.c_ulong()
    if not _IS_X86 or _libc.syscall(_SYS_ARCH_PRCTL, _ARCH_GET_FS, ctypes.byref(fs)) != 0:
        return 0, 0
    return restartable_sequences(fs.value)


_STACK_END: Final = _stack_end()
"""The address at which the stack of this process begins; 0 where memory cannot be borrowed."""
_SEQUENCES: Final = _own_sequences()
"""What the main thread has registered by rseq(2): zygotes and their forks have no other."""


def set_name(name: str) -> None:
    """Set what tools show as this process's name, at most 15 characters."""
    _checked(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0), "prctl(PR_SET_NAME)")


def reset_reserved_signals() -> None:
    """Reset the signals that the C library reserves: its posix_spawn, which make uses, leaves them ignored."""
    if _SYS_RT_SIGACTION is not None:
        for number in _RESERVED_SIGNALS:
            _libc.syscall(_SYS_RT_SIGACTION, number, _DEFAULT_ACTION, None, ctypes.c_size_t(8))


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def unshare(flags: int) -> None:
    """Move this process into new namespaces.

    Raises:
        OSError: The kernel does not allow it.
    """
    _checked(_libc.unshare(flags), "unshare")


def join(namespace: int) -> None:
    """Move this process into the namespace that a descriptor names; for a pid namespace, its children to come.

    Raises:
        OSError: The kernel does not allow it.
    """
    _checked(_libc.setns(namespace, 0), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system, or change how one is mounted.

    Raises:
        OSError: The kernel does not allow it; the text names the target.
    """
    data = options.encode() or None
    returned = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data)
    _checked(returned, f"mount of {kind or 'flags'} on {target}")


def drop_capabilities() -> None:
    """Drop every capability, for this process and whatever it executes."""
    bound_capabilities()
    clear_capabilities()


def bound_capabilities(kept: int = 0) -> None:
    """Empty the bounding set but for `kept`, a bit each: no program that is executed gains another capability."""
    capability = 0
    # The kernel knows no number after that of its last one. /proc tells that, too, but not everywhere.
    while _libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
        if not kept >> capability & 1:
            _checked(_libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), "prctl(PR_CAPBSET_DROP)")
        capability += 1


def clear_capabilities() -> None:
    """Drop the capabilities that are held."""
    if passes_on_capabilities():
        _checked(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl(PR_CAP_AMBIENT)")
    set_capabilities(0, 0)


def keep_capabilities() -> None:
    """Keep what capabilities are permitted through the next change from uid 0 to another."""
    _checked(_libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl(PR_SET_KEEPCAPS)")


def set_capabilities(held: int, inheritable: int) -> None:
    """Set the capabilities that are effective and permitted, and those that are inheritable: a bit each, below 32."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)(held, held, inheritable, 0, 0, 0)), "capset")


def hold_capabilities(effective: int, permitted: int | None = None) -> None:
    """Set the capabilities that are effective, for the calling thread; `permitted` are by default those that are."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    most = permitted_capabilities() if permitted is None else permitted
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)(effective, most, 0, 0, 0, 0)), "capset")


def effective_capabilities() -> int:
    """Return the calling thread's effective capabilities, a bit each, below 32."""
    return _capabilities()[0]


def permitted_capabilities() -> int:
    """Return the calling thread's permitted capabilities, a bit each, below 32."""
    return _capabilities()[1]


def _capabilities() -> tuple[int, int]:
    header, data = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _checked(_libc.capget(header, data), "capget")
    return data[0], data[1]


def passes_on_capabilities() -> bool:
    """Return whether programs of others than uid 0 can keep capabilities: gVisor's kernel has no ambient ones."""
    return bool(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_IS_SET, 0, 0, 0) >= 0)


def pass_on_capability(capability: int) -> None:
    """Raise an inheritable capability to an ambient one, which executed programs keep."""
    _checked(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0), "prctl(PR_CAP_AMBIENT)")


def touch_files_as(user: int, group: int) -> None:
    """Set the uid and gid with which the kernel checks and creates files, for this thread and those that it starts.

    Where the kernel keeps no such ids (gVisor's does not), the whole process takes them as its effective ones: it can
    leave them again, and neither signals nor tracing go by them.

    Raises:
        OSError: This process may not.
    """
    _libc.setfsgid(group)
    _libc.setfsuid(user)
    # Neither call tells whether it did anything; the next answers with what is in force.
    if not keeps_file_ids():
        os.setegid(group)
        os.seteuid(user)
    elif _libc.setfsuid(-1) != user or _libc.setfsgid(-1) != group:
        raise OSError(errno.EPERM, f"setfsuid({user}): {os.strerror(errno.EPERM)}")


def set_thread_user(real: int, effective: int, saved: int) -> None:
    """Set the three uids of only the calling thread; the C library's function sets those of all threads.

    Raises:
        OSError: This thread may not.
    """
    _checked(_libc.syscall(_SYS_SETRESUID, real, effective, saved), "setresuid")


def set_thread_group(real: int, effective: int, saved: int) -> None:
    """Set the three gids of only the calling thread, as `set_thread_user`."""
    _checked(_libc.syscall(_SYS_SETRESGID, real, effective, saved), "setresgid")


@cache
def keeps_file_ids() -> bool:
    """Return whether the kernel keeps uids and gids only for files: Linux does, gVisor's does not."""
    return bool(_libc.setfsuid(-1) != -1)


def private_pipe() -> tuple[int, int]:
    """Create a pipe that user code cannot open in /proc; for a process with one thread."""
    user = os.geteuid()
    if user == os.getuid():
        return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    os.seteuid(os.getuid())
    try:
        return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.seteuid(user)


def forbid_new_privileges() -> None:
    """Make set-uid programs ordinary ones, for this process and whatever it runs."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def install_filter(instructions: bytes) -> None:
    """Load a seccomp filter, an array of struct sock_filter; an empty one filters nothing."""
    if instructions:
        program = _FilterProgram(len(instructions) // _INSTRUCTION_BYTES, instructions)
        returned = _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)
        _checked(returned, "prctl(PR_SET_SECCOMP)")


def close_all_but(kept: list[int]) -> None:
    """Close every descriptor but these."""
    low = 0
    for fd in sorted({*kept}):
        if fd > low:
            os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 1 << 30)
