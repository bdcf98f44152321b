"""Forks of a running kernel, made between two of its cells: kernels with its variables and modules, copied on write.

The kernel forks one process, which forks a kernel for each message of the agent and exits when the agent closes the
socket: its forks are then children of the zygote, as every kernel is. On request it writes its memory to a file, too:
kernels of other sandboxes continue from that, in the same place of this code. Whatever a fork cannot share with the
original is replaced in place: descriptors of sockets and pipes are at their end, files are opened again at the same
position.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import stat
import sys
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sandmeshd.agent.userland.core import syscall_table
from sandmeshd.agent.userland.python import leftovers
from sandmeshd.agent.userland.python.memory import image as memory_image

_SAVE = b"save "
"""The agent's message with the descriptor of a file for the memory; the most bytes of that follow."""

_STATE_BYTES = 2496
"""The state of NumPy's generator."""
_ANSWER_SECONDS = 0.0002
"""How long a fork sleeps between two looks at whether its parent has exited."""
_CREATION_FLAGS = os.O_CREAT | os.O_EXCL | os.O_TRUNC | getattr(os, "O_TMPFILE", 0)


class Fork:
    """A process that a kernel forked: its descriptors, and what tells it that it has become the zygote's child."""

    def __init__(self, fds: list[int], parent: int, parent_exited: int) -> None:
        """Take the descriptors of channel, output and error, and the pid and a pipe of the process that forked it."""
        self.fds = fds
        self._parent = parent
        self._parent_exited = parent_exited

    def detach(self, kept: Iterable[int]) -> None:
        """Become a process apart but for the descriptors `kept`; wait until the one that forked this one has exited."""
        os.setsid()
        _replace_descriptors({0, 1, 2, self._parent_exited, *kept})
        # While others are forked, rather than when all are.
        reseed()
        os.read(self._parent_exited, 1)
        os.close(self._parent_exited)
        while os.getppid() == self._parent:
            time.sleep(_ANSWER_SECONDS)


class RestoredFork:
    """A kernel of another sandbox that continues from the memory of a process which a kernel here had forked."""

    def __init__(self, message: dict[str, Any]) -> None:
        """Take what `ForkedKernel.continue_from` has told it."""
        self.fds: list[int] = message["kept"]
        self._message = message

    def detach(self, kept: Iterable[int]) -> None:
        """Take on what is this process's own: its thread's id, the environment of its sandbox, random numbers."""
        del kept
        syscall_table.unmap(*self._message["table"])
        thread, place = self._message["thread"]
        if place >= 0:
            ctypes.c_int.from_address(thread + place).value = os.getpid()
        os.environ.update(self._message["environment"])
        reseed()


def serve(control_fd: int, own: set[int], loop: Any) -> Fork | RestoredFork | None:
    """Fork the kernels that the agent requests on a socket; `own` are the kernel's descriptors, `loop` its event loop.

    Returns: in each fork, and in what continues from the saved memory, what it is made of; in the kernel None.
    """
    control = socket.socket(fileno=control_fd)
    obstacle = leftovers.find_obstacle()
    if obstacle:
        _send(control, {"refused": obstacle})
        control.close()
        return None
    gate, opener = os.pipe2(os.O_CLOEXEC)
    try:
        pid = _fork()
    except OSError as error:
        _send(control, {"errno": error.errno})
        pid = -1
    if pid == 0:
        os.close(opener)
        return _serve_forks(control, gate, own, loop)
    os.close(gate)
    if pid > 0:
        _let_go(control, pid, opener)
    os.close(opener)
    control.close()
    if pid > 0:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return None


def _let_go(control: socket.socket, pid: int, opener: int) -> None:
    """Release the forked process, unless this one has threads that libraries did not end for the fork."""
    threads = leftovers.native_threads()
    if threads:
        os.kill(pid, signal.SIGKILL)
        _send(control, {"refused": leftovers.describe_threads(threads)})
    else:
        os.write(opener, b"1")


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns of threads, which are looked for here.
        warnings.simplefilter("ignore")
        return os.fork()


def _serve_forks(control: socket.socket, gate: int, own: set[int], loop: Any) -> Fork | RestoredFork:
    """Fork for each message, until the agent closes the socket; return in the forks and in what continues."""
    try:
        if not os.read(gate, 1):
            os._exit(0)
        parent = os.getpid()
        exited, exits = os.pipe2(os.O_CLOEXEC)
        _send(control, {"not_copied": leftovers.describe({*own, control.fileno(), gate, exited, exits}, loop)})
        made: list[int] | memory_image.Restored | None = None
        while made is None:
            made = _make(control)
    except BaseException:
        os._exit(70)
    control.close()
    if isinstance(made, memory_image.Restored):
        return RestoredFork(made.message)
    for fd in (gate, exits):
        os.close(fd)
    return Fork(made, parent, exited)


def _make(control: socket.socket) -> list[int] | memory_image.Restored | None:
    """Carry out the agent's next request; in a fork return its descriptors, in a restored kernel what it was sent."""
    data, fds, _, _ = socket.recv_fds(control, 64, 3)
    if not data:
        os._exit(0)
    if data.startswith(_SAVE) and len(fds) == 1:
        restored = _save(control, fds[0], int(data.removeprefix(_SAVE)))
        if restored is not None:
            return restored
    elif len(fds) == 3 and _fork_one(control) == 0:
        return fds
    for fd in fds:
        os.close(fd)
    return None


def _fork_one(control: socket.socket) -> int:
    """Fork, and report that unless it is in the fork; return -1 where the system refuses."""
    try:
        pid = os.fork()
    except OSError as error:
        _send(control, {"errno": error.errno})
        return -1
    if pid:
        _send(control, {"forked": pid})
    return pid


def _save(control: socket.socket, image: int, most: int) -> memory_image.Restored | None:
    """Write this process's memory, and report that unless it is in what continues."""
    try:
        saved = memory_image.save(image, most)
    except (OSError, ValueError) as error:
        _send(control, {"refused": f"its memory could not be copied: {error}"})
        return None
    if isinstance(saved, memory_image.Restored):
        return saved
    _send(control, {"saved": saved.size})
    return None


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):
        control.send(json.dumps(message).encode())


def reseed() -> None:
    """Reseed the random numbers of modules in this process: others were forked from the same one."""
    for name, draw in (("random", _seed), ("numpy.random", _draw_state), ("torch", _seed)):
        module: Any = sys.modules.get(name)
        if module is not None:
            # A module that is half imported, or that user code replaced, may lack it.
            with suppress(Exception):
                draw(module)


def _seed(module: Any) -> None:
    module.seed()


def _draw_state(module: Any) -> None:
    """Draw NumPy's whole state: its own seed collects entropy by code that touches 100 pages, which a fork copies."""
    try:
        words = sys.modules["numpy"].frombuffer(os.urandom(_STATE_BYTES), "uint32")
        module.set_state(("MT19937", words, _STATE_BYTES // words.itemsize))
    except Exception:
        # User code chose another generator.
        module.seed()


def _replace_descriptors(kept: set[int]) -> None:
    """Replace every other descriptor by one that shares nothing with the process that this one was forked from."""
    # Of datagrams: reading finds the end, and writing fails without the signal that would end the kernel.
    ended, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    other.close()
    ended.shutdown(socket.SHUT_RD)
    for fd in leftovers.descriptors():
        if fd not in kept and fd != ended.fileno():
            with suppress(OSError):
                _replace(fd, ended.fileno())
    ended.close()


def _replace(fd: int, ended: int) -> None:
    target = leftovers.target_of(fd)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        _reopen(fd, regular=stat.S_ISREG(mode))
    elif "eventpoll" in target:
        with select.epoll() as fresh:
            _put(fresh.fileno(), fd)
    elif "eventfd" in target:
        fresh_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        _put(fresh_fd, fd)
        os.close(fresh_fd)
    elif not stat.S_ISCHR(mode):
        _put(ended, fd)


def _reopen(fd: int, *, regular: bool) -> None:
    """Open a file or directory again, with a position of this process's own."""
    flags = leftovers.flags_of(fd)
    if flags & os.O_PATH:
        return
    fresh = os.open(f"/proc/self/fd/{fd}", (flags & ~_CREATION_FLAGS if regular else flags) | os.O_CLOEXEC)
    try:
        if regular:
            os.lseek(fresh, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
        _put(fresh, fd)
    finally:
        os.close(fresh)


def _put(source: int, fd: int) -> None:
    os.dup2(source, fd, inheritable=os.get_inheritable(fd))
