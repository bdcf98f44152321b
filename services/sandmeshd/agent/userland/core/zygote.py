"""The kernel zygote: PID 1 of user code's namespaces.

It is single-threaded, holds no secret and cannot be signalled by what runs below it. On request it forks kernels, with
IPython imported, and spawns programs; it reaps everything and reports how what it started ended.

A request is one JSON message with descriptors (SCM_RIGHTS): `op` is "fork" (a kernel: its socket, output and error),
"spawn" (a program: input, output, error), "adopt" (a kernel that another one forked: its pid), "signal", or "echo".
A message over the socket's size comes in a memory file, its descriptor first and the message only
{"large": true, "id"}.
Reports: {"up"}, {"started": id, "pid"}, {"refused": id, "errno", "step"}, {"ended": id, "status", "failure"},
{"echo": id}.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from sandmeshd.agent.userland.core import isolation, launch, syscalls

LARGEST_MESSAGE = 131_072
_MOST_FDS = 4
_REPORT_ATTEMPTS = 100
_REPORT_DELAY = 0.05
"""In seconds, before a report for which there is no memory is sent again."""


@dataclass(frozen=True)
class Child:
    """A process that was started on request; its group is its pid."""

    id: int
    pid: int
    kernel: bool
    whole: bool
    """Whether its group ends with it."""
    failure: int | None
    """The pipe on which it reports what keeps its program from running, if that is not known by now."""


class ZygoteLoop:
    """The loop over requests and ended children."""

    def __init__(self, control: socket.socket, cgroup_fds: list[int], requests: socket.socket | None = None) -> None:
        """Take the socket to the agent, and the descriptors through which each child joins its control groups.

        Where the agent's requests come by another process, which has told it that user code can start, they come on
        `requests`; reports still go to the agent.
        """
        self._control = control
        self._requests = requests or control
        self._cgroup_fds = cgroup_fds
        self._children: dict[int, Child] = {}
        self._pids: dict[int, int] = {}
        self._woken, self._wake = syscalls.private_pipe()
        self._poll = select.poll()
        self._kernel: Any = None
        self._make: Callable[[], Any] | None = None
        self._waiting: list[tuple[dict[str, Any], list[int]]] = []

    def serve(self, steps: Iterator[Any]) -> None:
        """Serve until the agent exits. What `steps` yields last creates the kernel; until then only programs start."""
        self._begin()
        make: Any = None
        for make in steps:  # noqa: B007 - the last one counts
            while self._turn(0):
                pass
        self._warm(make)
        while True:
            self._turn(None)

    def _begin(self) -> None:
        if os.getpid() != 1:
            # Kernels that others forked become its children, as they do where it is the first process. gVisor does not
            # know this: there they are refused when they are to be adopted.
            with suppress(OSError):
                syscalls.adopt_orphans()
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_only)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._poll.register(self._requests, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        if self._requests is self._control:
            self._report({"up": True})

    def _warm(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._have_kernel(make)
        for request, fds in self._waiting:
            self._fork(request, fds)
        self._waiting.clear()

    def _have_kernel(self, make: Callable[[], Any]) -> int:
        """Make the kernel that others are forked from, where there is none. Returns: what the system has against it."""
        if self._kernel is None:
            try:
                self._kernel = make()
            except OSError as error:
                # User code that runs by now may have filled the home: kernels are refused until it has room.
                return error.errno or errno.EIO
            gc.freeze()
        return 0

    def _turn(self, timeout: int | None) -> bool:
        ready = dict(self._poll.poll(timeout))
        if self._woken in ready:
            os.read(self._woken, 4096)
            self._reap()
        if self._requests.fileno() in ready:
            self._request()
        return bool(ready)

    def _report(self, report: dict[str, Any]) -> None:
        deliver(self._control, report)

    def _request(self) -> None:
        data, fds, flags = _receive(self._requests)
        if not data:
            os._exit(0)
        request = json.loads(data)
        if flags & socket.MSG_CTRUNC:
            # There were no free descriptors for all that came with the request.
            self._refuse(request, fds, errno.EMFILE, "descriptors")
            return
        if "large" in request:
            request = json.loads(_read_all(fds.pop(0)))
        operations = {
            "fork": self._fork,
            "spawn": self._spawn,
            "adopt": self._adopt,
            "signal": self._signal,
            "echo": self._echo,
        }
        operations[request["op"]](request, fds)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        if self._make is None:
            self._waiting.append((request, fds))
        elif number := self._have_kernel(self._make):
            self._refuse(request, fds, number, "kernel")
        elif number := _refused_directory(isolation.path_at_home(request["cwd"]), request["limits"]["user"]):
            self._refuse(request, fds, number, "directory")
        else:
            self._start(request, fds, kernel=True)

    def _refuse(self, request: dict[str, Any], fds: list[int], number: int | None, step: str) -> None:
        close(fds)
        self._report({"refused": request["id"], "errno": number, "step": step})

    def _spawn(self, request: dict[str, Any], fds: list[int]) -> None:
        self._start(request, fds, kernel=False)

    def _adopt(self, request: dict[str, Any], _: list[int]) -> None:
        """Take a process that a kernel forked, and that its parent's end made a child of this one, as a kernel.

        The pid is the kernel's word: what is not a child, or is known, is refused.
        """
        pid = request["pid"]
        try:
            if pid in self._children:
                raise ChildProcessError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except (OSError, OverflowError):
            self._refuse(request, [], errno.ESRCH, "adopt")
        else:
            self._record(request, pid, None, kernel=True)

    def _signal(self, request: dict[str, Any], _: list[int]) -> None:
        pid = self._pids.get(request["id"])
        if pid is None:
            return
        try:
            os.killpg(pid, request["number"])
        except ProcessLookupError:
            # It has not come to make its group yet.
            with suppress(ProcessLookupError):
                os.kill(pid, request["number"])

    def _echo(self, request: dict[str, Any], _: list[int]) -> None:
        self._report({"echo": request["id"]})

    def _start(self, request: dict[str, Any], fds: list[int], *, kernel: bool) -> None:
        try:
            failure, report_fd = syscalls.private_pipe()
        except OSError as error:
            self._refuse(request, fds, error.errno, "pipe")
            return
        try:
            pid = self._fork_child()
        except OSError as error:
            os.close(failure)
            self._report({"refused": request["id"], "errno": error.errno, "step": "fork"})
        else:
            if pid == 0:
                self._be_child(request, fds, report_fd, kernel)
            self._record(request, pid, failure, kernel=kernel)
        finally:
            close([report_fd, *fds])

    def _fork_child(self) -> int:
        # What modules do at a fork in Python is for threads: it writes to eighty shared pages of either side.
        return syscalls.fork_bare()

    def _record(self, request: dict[str, Any], pid: int, failure: int | None, *, kernel: bool) -> None:
        whole = kernel or request.get("whole", False)
        self._children[pid] = Child(request["id"], pid, kernel, whole, failure)
        self._pids[request["id"]] = pid
        self._report({"started": request["id"], "pid": pid})

    def _be_child(self, request: dict[str, Any], fds: list[int], report_fd: int, kernel: bool) -> None:
        if not kernel:
            launch.become(request, fds, report_fd, self._cgroup_fds)
        try:
            launch.join_cgroups(self._cgroup_fds)
            self._kernel.run_cells(request, fds)
        finally:
            os._exit(70)

    def _reap(self) -> None:
        while True:
            try:
                # Looked at before it is reaped: until then its pid, and so its group, cannot be another's.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            self._reap_one(ended.si_pid)

    def _reap_one(self, pid: int) -> None:
        child = self._children.pop(pid, None)
        if child is not None and child.whole:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if child is None:
            return
        self._pids.pop(child.id, None)
        failure = None
        if child.failure is not None:
            failure = launch.read_report(child.failure) if not child.kernel else None
            os.close(child.failure)
        self._report({"ended": child.id, "status": status, "failure": failure})


def _refused_directory(path: str, user: int) -> int:
    """Return what the system has against entering a directory, 0 where nothing.

    What only `user`, which is not this process's, may enter is found out by the kernel.
    """
    try:
        os.close(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    except (OSError, ValueError) as error:
        number: int = getattr(error, "errno", None) or errno.EINVAL
    else:
        number = 0 if os.access(path, os.X_OK) else errno.EACCES
    return 0 if number == errno.EACCES and user not in (0, os.getuid()) else number


def deliver(to: socket.socket, message: dict[str, Any]) -> None:
    """Send a message, and end this process if there is no receiver."""
    data = json.dumps(message).encode()
    for _ in range(_REPORT_ATTEMPTS):
        try:
            to.send(data)
        except OSError as error:
            if error.errno not in (errno.ENOBUFS, errno.ENOMEM):
                break
            time.sleep(_REPORT_DELAY)
        else:
            return
    os._exit(0)


def _wake_only(_number: int, _frame: object) -> None:
    """Take a signal whose only work is to wake the loop."""


def _receive(requests: socket.socket) -> tuple[bytes, list[int], int]:
    # As socket.recv_fds does, but closed to programs from the first moment.
    fds = array("i")
    room = socket.CMSG_LEN(_MOST_FDS * fds.itemsize)
    data, ancillary, flags, _ = requests.recvmsg(LARGEST_MESSAGE, room, socket.MSG_CMSG_CLOEXEC)
    for _, _, packed in ancillary:
        fds.frombytes(packed[: len(packed) - len(packed) % fds.itemsize])
    return data, list(fds), flags


def close(fds: list[int]) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return file.read()


def run(fds: list[int], site: str, *, warm: bool = True) -> None:
    """Run the zygote until the agent exits; `site` is where this package was found.

    Without `warm` the first kernel answers sooner, and the first error of each takes longer.
    """
    ZygoteLoop(*own(fds)).serve(import_steps(site, warm=warm))


def own(fds: list[int]) -> tuple[socket.socket, list[int]]:
    """Close this process and its descriptors to others; return the socket to the agent, and those of control groups."""
    syscalls.set_dumpable(False)
    for fd in fds:
        os.set_inheritable(fd, False)
    return socket.socket(fileno=fds[0]), fds[1:]


def import_steps(site: str, *, warm: bool = True, later: bool = False) -> Iterator[Any]:
    """Import step by step what kernels need, and yield the function that creates the kernel last."""
    # What is imported stays: to look through it for garbage takes a sixth of the time.
    gc.disable()
    with suppress(OSError):
        os.makedirs(os.environ.get("HOME", "/nonexistent/home"), mode=0o700, exist_ok=True)  # noqa: PTH103 - as below
    for name in ("inspect", "asyncio", "logging.config", "traitlets.config", "IPython.core.interactiveshell"):
        yield import_module(name)
    kernels = import_module("sandmeshd.agent.userland.python.kernel")
    _forget(site)
    gc.enable()
    gc.freeze()
    yield partial(_make_kernel, partial(kernels.ForkedKernel, warm=warm, later=later))


def _make_kernel(kernel: Callable[[], Any]) -> Any:
    made = kernel()
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 - pathlib is a slow import
        sys.exit("what kernels are forked from has threads and cannot fork")
    return made


def _forget(site: str) -> None:
    """Remove this project's modules from where user code's imports look."""
    sys.path.remove(site)
    for name in [name for name in sys.modules if name.partition(".")[0] in {"sandmesh", "sandmeshd"}]:
        del sys.modules[name]
