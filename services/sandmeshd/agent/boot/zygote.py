"""The agents' zygote: a process with the agent's code imported that forks sandboxes' agents.

It has one thread, no secret and no data of any sandbox, like the template process beside it, which it starts under the
template's own interpreter for user code's side. Requests arrive on a socket of its driver, one message each: first the
`View` with the template process's program, then the `SandboxMounts` of each sandbox with its descriptors (lock, status,
log, config, driver; then the lock of its uid, if it has a separate one; then, if memory is limited, the counter of OOM
kills). Those of sandboxes whose root is an image get another configuration and other requests: see
sandmeshd.agent.boot.image. It reports {"up": true} once, or why it starts no sandboxes: {"refused": "..."}.

It outlives its driver until the last of its sandboxes has ended, to record in their status files how they ended;
without driver or template process it starts no more.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from sandmeshd.agent.processes.namespaces import PROGRAM
from sandmeshd.agent.userland.core import heap, syscalls

Start = Callable[[dict[str, Any], list[int], int, int], tuple[int, bool]]
"""Takes what the driver requests, its descriptors, where to record that it was spawned, and the template process.

Returns the pid of what was started, or 0, and whether it is the sandbox's PID 1: if not, it records that one there."""

NAME = "sandmesh-zygote"
START_SECONDS = 60
"""After which a zygote or template process that is not up ends by itself, even if it is still awaited."""
_LARGEST_MESSAGE = 1 << 20
_FEWEST_FDS, _MOST_FDS = 5, 8
_MODULES = ("sandmeshd.agent.boot.sandbox", "sandmeshd.agent.tools.handlers", "sandmeshd.agent.files.confinement")


class SandboxZygote:
    """The loop over requests and ended sandboxes."""

    def __init__(
        self, control: socket.socket, template_process: socket.socket, make_start: Callable[[list[int]], Start]
    ) -> None:
        self._sandbox: Any = import_module("sandmeshd.agent.boot.sandbox")
        self._control = control
        self._template_process = template_process
        self._spawned_reader, self._spawned_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._start = make_start([self._spawned_reader, self._spawned_writer, self._woken, self._wake])
        self._poll = select.poll()
        self._starting: dict[int, int] = {}
        self._living: dict[int, int] = {}
        self._serving = True

    def serve(self) -> NoReturn:
        """Serve until the driver is gone and the last sandbox has ended."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_only)
        for watched in (self._control, self._template_process, self._woken):
            self._poll.register(watched, select.POLLIN)
        while self._serving or self._starting or self._living:
            ready = {fd for fd, _ in self._poll.poll()}
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if self._serving and self._template_process.fileno() in ready:
                self._retire()
            if self._serving and self._control.fileno() in ready:
                self._request()
        os._exit(0)

    def _retire(self) -> None:
        """Start no more sandboxes, and report to the driver how many are still alive."""
        self._serving = False
        with suppress(OSError):
            self._control.send(json.dumps({"living": len(self._starting) + len(self._living)}).encode())
        for watched in (self._control, self._template_process):
            self._poll.unregister(watched)
            watched.close()

    def _request(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._control, _LARGEST_MESSAGE, _MOST_FDS)
        if not data:
            self._retire()
            return
        if len(fds) < _FEWEST_FDS:
            # The limit of descriptors is reached: the driver sees its end of the socket close.
            _close(fds)
            return
        status = fds.pop(1)
        process = self._template_process.fileno()
        child, is_first = self._start(json.loads(data), fds, self._spawned_writer, process)
        if child:
            (self._living if is_first else self._starting)[child] = status
        else:
            os.close(status)
        _close(fds)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                # A parent of PID 1 writes its record before it ends.
                self._read_spawned()
                self._record_end(pid, status)

    def _read_spawned(self) -> None:
        size = self._sandbox.SPAWNED.size
        with suppress(BlockingIOError):
            while record := os.read(self._spawned_reader, size):
                parent, child = self._sandbox.SPAWNED.unpack(record)
                self._living[child] = self._starting.pop(parent)

    def _record_end(self, pid: int, status: int) -> None:
        failed_start = self._starting.pop(pid, None)
        if failed_start is not None:
            os.close(failed_start)
        status_file = self._living.pop(pid, None)
        if status_file is not None:
            code = os.waitstatus_to_exitcode(status)
            line = {"exit-code": code if code >= 0 else 128 - code}
            os.write(status_file, json.dumps(line).encode() + b"\n")
            os.close(status_file)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _wake_only(_number: int, _frame: object) -> None:
    """Handle a signal that only has to wake the loop."""


def _start_template_process(config: dict[str, Any], user_namespace: int) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            fd = theirs.fileno()
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            if image := config.get("image"):
                import_module("sandmeshd.agent.boot.image.zygote").shut_in(image, user_namespace)
            syscalls.close_all_but([0, 1, 2, fd])
            theirs.set_inheritable(True)
            module = "image_template_process" if image else "template_process"
            arguments = [config["python"], "-I", PROGRAM, module, str(fd)]
            signal.alarm(START_SECONDS)
            os.execve(config["python"], arguments, config["environment"])  # noqa: S606 - no shell is wanted
        except OSError as error:
            os.write(2, f"the template process could not be started: {error}\n".encode())
        finally:
            os._exit(1)
    theirs.close()
    return ours


def run(control_fd: int, user_namespace: int = -1) -> NoReturn:
    """Run the zygote of a driver at the other end of a socket.

    `user_namespace` is what those of sandboxes with images are below; negative where that is this process's.
    """
    # The first process of a pid namespace has no default actions.
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(START_SECONDS)
    os.set_inheritable(control_fd, False)
    control = socket.socket(fileno=control_fd)
    data = control.recv(_LARGEST_MESSAGE)
    if not data:
        os._exit(0)
    config = json.loads(data)
    syscalls.set_name(NAME)
    syscalls.adopt_orphans()
    template_process = _start_template_process(config, user_namespace)
    try:
        _import()
    except ValueError as error:
        control.send(json.dumps({"refused": str(error)}).encode())
        sys.exit(f"the tools of sandboxes are refused: {error}")
    zygote = SandboxZygote(control, template_process, partial(_start_of, config, user_namespace))
    if template_process.recv(_LARGEST_MESSAGE):
        signal.alarm(0)
        control.send(json.dumps({"up": True}).encode())
    zygote.serve()


def _start_of(config: dict[str, Any], user_namespace: int, own: list[int]) -> Start:
    """Return what starts a sandbox; `own` are the zygote's pipes."""
    if "image" in config:
        image: Any = import_module("sandmeshd.agent.boot.image.sandbox")
        starter = image.Starter(user_namespace, own)

        def fork(body: dict[str, Any], fds: list[int], spawned: int, process: int) -> tuple[int, bool]:
            child = syscalls.fork_bare()
            if child == 0:
                starter.start(body, fds, spawned, process)
            return child, False

        return fork
    sandbox: Any = import_module("sandmeshd.agent.boot.sandbox")
    view = sandbox.ZygoteMounts(**config["view"])

    def start(body: dict[str, Any], fds: list[int], _: int, process: int) -> tuple[int, bool]:
        mounts = sandbox.SandboxMounts(**body)
        descriptors = sandbox.SandboxDescriptors.received([*fds], has_uid=bool(mounts.uid))
        return sandbox.start_sandbox(view, mounts, descriptors, process), True

    return start


def _end(_number: int, _frame: object) -> NoReturn:
    os._exit(1)


def _import() -> None:
    for name in _MODULES:
        import_module(name)
    warmup: Any = import_module("sandmeshd.agent.boot.warmup")
    warmup.warm_up()
    # What it imported is looked up no more; what agents look up is remembered by a second one.
    gc.collect()
    heap.forget_lookups()
    warmup.warm_up()
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 - pathlib is a slow import
        sys.exit("the zygote has threads and cannot fork")
    # Sandboxes share the memory of what was imported: collections must not write to it.
    gc.collect()
    heap.fill_holes()
    gc.freeze()
