"""The agents' zygote: stands by with the agent's code imported, and forks sandboxes' agents.

It has one thread, no secret and nothing of any sandbox; so has the nursery beside it, which it starts under the
template's own interpreter for user code's side. What it is asked for comes on a socket of its driver, a message each:
first the `View` with the nursery's program, then the `Own` of each sandbox with its descriptors (lock, status, log,
config, driver, and where memory is limited what counts ends for want of it). It says {"up": true} once.

It outlives its driver for as long as sandboxes live that it started, to note in their status files how they ended;
without driver or nursery it starts no more.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from sandmeshd.agent.processes.namespaces import PROGRAM
from sandmeshd.agent.userland import syscalls

NAME = "sandmesh-zygote"
START_SECONDS = 60
"""After which a zygote or nursery that has not come up ends by itself, whoever still waits for it."""
_LARGEST_MESSAGE = 1 << 20
_FEWEST_GIVEN, _MOST_GIVEN = 5, 6
_MODULES = ("sandmeshd.agent.boot.cradle", "sandmeshd.agent.tools.handlers", "sandmeshd.agent.files.confinement")


class Zygote:
    """The loop over requests and ended sandboxes."""

    def __init__(self, control: socket.socket, nursery: socket.socket, told: dict[str, Any]) -> None:
        self._cradle: Any = import_module("sandmeshd.agent.boot.cradle")
        self._view = self._cradle.View(**told["view"])
        self._control = control
        self._nursery = nursery
        self._births, self._birth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._being_born: dict[int, int] = {}
        self._living: dict[int, int] = {}
        self._serving = True

    def serve(self) -> NoReturn:
        """Answer until the driver goes, and then until the last sandbox ended."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_only)
        for watched in (self._control, self._nursery, self._woken):
            self._poll.register(watched, select.POLLIN)
        while self._serving or self._being_born or self._living:
            ready = {fd for fd, _ in self._poll.poll()}
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if self._serving and self._nursery.fileno() in ready:
                self._retire()
            if self._serving and self._control.fileno() in ready:
                self._request()
        os._exit(0)

    def _retire(self) -> None:
        """Start no more sandboxes; a driver that still listens hears how many live on."""
        self._serving = False
        with suppress(OSError):
            self._control.send(json.dumps({"living": len(self._being_born) + len(self._living)}).encode())
        for watched in (self._control, self._nursery):
            self._poll.unregister(watched)
            watched.close()

    def _request(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._control, _LARGEST_MESSAGE, _MOST_GIVEN)
        if not data:
            self._retire()
            return
        if len(fds) < _FEWEST_GIVEN:
            # This process has as many as it may have: the driver sees its end of the socket close.
            _close(fds)
            return
        status = fds.pop(1)
        child = syscalls.fork_bare()
        if child == 0:
            own, given = self._cradle.Own(**json.loads(data)), self._cradle.Given(*fds)
            self._cradle.be_sandbox(self._view, own, given, self._birth, self._nursery.fileno())
        self._being_born[child] = status
        _close(fds)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                # Who gave birth said so before it ended.
                self._note_births()
                self._bury(pid, status)

    def _note_births(self) -> None:
        size = self._cradle.BIRTH.size
        with suppress(BlockingIOError):
            while told := os.read(self._births, size):
                parent, child = self._cradle.BIRTH.unpack(told)
                self._living[child] = self._being_born.pop(parent)

    def _bury(self, pid: int, status: int) -> None:
        unborn = self._being_born.pop(pid, None)
        if unborn is not None:
            os.close(unborn)
        account = self._living.pop(pid, None)
        if account is not None:
            code = os.waitstatus_to_exitcode(status)
            line = {"exit-code": code if code >= 0 else 128 - code}
            os.write(account, json.dumps(line).encode() + b"\n")
            os.close(account)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _wake_only(_number: int, _frame: object) -> None:
    """Take a signal whose only work is to wake the loop."""


def _start_nursery(told: dict[str, Any]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            fd = theirs.fileno()
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            syscalls.close_all_but([0, 1, 2, fd])
            theirs.set_inheritable(True)
            arguments = [told["python"], "-I", PROGRAM, "nursery", str(fd)]
            signal.alarm(START_SECONDS)
            os.execve(told["python"], arguments, told["environment"])  # noqa: S606 - no shell is wanted
        finally:
            os._exit(1)
    theirs.close()
    return ours


def run(control_fd: int) -> NoReturn:
    """Be the zygote of a driver at the other end of a socket."""
    signal.alarm(START_SECONDS)
    os.set_inheritable(control_fd, False)
    control = socket.socket(fileno=control_fd)
    data = control.recv(_LARGEST_MESSAGE)
    if not data:
        os._exit(0)
    told = json.loads(data)
    syscalls.set_name(NAME)
    syscalls.adopt_orphans()
    nursery = _start_nursery(told)
    _import()
    zygote = Zygote(control, nursery, told)
    if nursery.recv(_LARGEST_MESSAGE):
        signal.alarm(0)
        control.send(json.dumps({"up": True}).encode())
    zygote.serve()


def _import() -> None:
    for name in _MODULES:
        import_module(name)
    import_module("sandmeshd.agent.boot.rehearsal").rehearse()
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 - pathlib is a slow import
        sys.exit("the zygote has threads and cannot fork")
    # Of what was imported sandboxes share the memory: collections must not touch it.
    gc.collect()
    gc.freeze()
