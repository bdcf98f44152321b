"""The zygote of a container: it makes files as user code does, and its children become user code by their uid.

In gVisor's kernel, where a fork takes ten times as long as elsewhere, it is two processes: the spawner, which programs
are forked from, ahead of the requests for them, and which imports nothing for kernels, and its child, which kernels are
forked from. The spawner receives all requests.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from sandmeshd.agent.userland import launch, syscalls, users, zygote

_BUSY_MS, _IDLE_MS = 30, 1
"""For how long there was nothing to do when a process is forked ahead, while a program runs and else."""


@dataclass(frozen=True)
class Spare:
    """A process that waits on a socket for the program that it will become."""

    pid: int
    socket: socket.socket
    failure: int


class Spawner(zygote.Zygote):
    """The loop over requests that starts programs, and passes on what is for kernels."""

    def __init__(self, control: socket.socket, cgroup_fds: list[int], kernels: socket.socket, pid: int) -> None:
        """Take what a zygote does, and the process that kernels are forked from with the socket to it."""
        super().__init__(control, cgroup_fds)
        self._kernels = kernels
        self._pid = pid
        self._spare: Spare | None = None
        self._wants_spare = True

    def serve_programs(self) -> NoReturn:
        """Serve until the agent or the process that kernels are forked from exits."""
        gc.collect()
        gc.freeze()
        self._begin()
        while True:
            # A fork would delay a program that has just begun.
            delay = _BUSY_MS if self._children else _IDLE_MS
            if not self._turn(delay if self._wants_spare else None):
                self._wants_spare = False
                # Without one, the next program is forked when it is asked for.
                with suppress(OSError):
                    self._spare = _fork_spare(self._cgroup_fds)

    def _spawn(self, request: dict[str, Any], fds: list[int]) -> None:
        spare, self._spare, self._wants_spare = self._spare, None, True
        if spare is None or not _hand_over(spare, request, fds):
            super()._spawn(request, fds)
        else:
            self._record(request, spare.pid, spare.failure, kernel=False)
            _close(fds)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        data = json.dumps(request).encode()
        if len(data) > zygote.LARGEST_MESSAGE:
            self._refuse(request, fds, errno.ENAMETOOLONG, "request")
            return
        try:
            socket.send_fds(self._kernels, [data], fds)
        except BrokenPipeError:
            os._exit(0)
        except OSError as error:
            self._refuse(request, fds, error.errno, "request")
        else:
            _close(fds)

    def _signal(self, request: dict[str, Any], _: list[int]) -> None:
        if request["id"] in self._pids:
            super()._signal(request, _)
        else:
            self._deliver(self._kernels, request)

    def _echo(self, request: dict[str, Any], _: list[int]) -> None:
        # The agent waits for the signals before it: this process has sent its own by now.
        self._deliver(self._kernels, request)

    def _reap_one(self, pid: int) -> None:
        if pid == self._pid:
            os._exit(0)
        super()._reap_one(pid)


def _fork_spare(cgroup_fds: list[int]) -> Spare:
    with ExitStack() as stack:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.callback(theirs.close)
        unless = stack.enter_context(ExitStack())
        unless.callback(ours.close)
        failure, report_fd = syscalls.private_pipe()
        stack.callback(os.close, report_fd)
        unless.callback(os.close, failure)
        pid = syscalls.fork_bare()
        if pid == 0:
            ours.close()
            _wait_for_program(theirs, report_fd, cgroup_fds)
        unless.pop_all()
        return Spare(pid, ours, failure)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _hand_over(spare: Spare, request: dict[str, Any], fds: list[int]) -> bool:
    data = json.dumps(request).encode()
    with spare.socket, suppress(OSError):
        if len(data) <= zygote.LARGEST_MESSAGE:
            socket.send_fds(spare.socket, [data], fds)
            return True
    os.close(spare.failure)
    return False


def _wait_for_program(requests: socket.socket, report_fd: int, cgroup_fds: list[int]) -> NoReturn:
    try:
        launch.prepare()
        data, fds, _, _ = socket.recv_fds(requests, zygote.LARGEST_MESSAGE, zygote.MOST_FDS)
        if data:
            launch.become(json.loads(data), fds, report_fd, cgroup_fds, prepared=True)
    finally:
        os._exit(0)


def run(fds: list[int], site: str) -> None:
    """Run the zygote of user code with the uid that comes first; the rest are descriptors."""
    user, *rest = fds
    if os.geteuid() == 0:
        users.become_agent()
    syscalls.touch_files_as(user)
    _fill_home(os.environ.get("HOME", ""))
    if syscalls.keeps_file_ids():
        zygote.run(rest, site, warm=False)
    else:
        run_two(rest, site)


def run_two(fds: list[int], site: str) -> None:
    """Run the spawner, and the process that kernels are forked from as its child, until the agent exits."""
    control, cgroup_fds = zygote.own(fds)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        Spawner(control, cgroup_fds, ours, pid).serve_programs()
    ours.close()
    zygote.Zygote(control, cgroup_fds, theirs).serve(zygote.import_steps(site, warm=False, later=True))


def _fill_home(home: str) -> None:
    """Copy the caches that the image's build left for the home: they take seconds to fill."""
    with suppress(OSError, shutil.Error):
        shutil.copytree(f"{sys.prefix}/home", home, dirs_exist_ok=True, copy_function=shutil.copyfile)
        os.chmod(home, 0o700)  # noqa: PTH101 - pathlib is a slow import
