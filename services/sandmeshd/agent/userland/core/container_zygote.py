"""The zygote of a container: it makes files as user code does, and its children become user code by their uid.

In gVisor's kernel, where both sides of a fork fault on each page again, it is two processes: the spawner, which
programs are started from, and which imports nothing for kernels, and its child, which kernels are forked from. The
spawner receives all requests. Its programs share its memory until they are executed (vfork), so that nothing is copied;
what they inherit, its working thread has. Only that thread has user code's uid while one is started: the first
thread, which does nothing else, keeps the uid that user code may not send signals to.
"""

from __future__ import annotations

import _thread
import errno
import gc
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

from sandmeshd.agent.userland.core import launch, layer, syscalls, users, zygote

_IDLE_MS = 1
"""For how long there was nothing to do when what programs need is imported."""


class Spawner(zygote.ZygoteLoop):
    """The loop over requests that starts programs, and passes on what is for kernels."""

    def __init__(self, control: socket.socket, cgroup_fds: list[int], kernels: socket.socket, pid: int) -> None:
        """Take what a zygote does, and the process that kernels are forked from with the socket to it."""
        super().__init__(control, cgroup_fds)
        self._kernels = kernels
        self._pid = pid
        self._limits: dict[str, int] | None = None
        """Those of this process, which its programs inherit, since the first of them."""
        self._subprocess: Any = None
        self._user = os.getuid()

    def serve_programs(self) -> NoReturn:
        """Serve until the agent or the process that kernels are forked from exits."""
        gc.collect()
        gc.freeze()
        launch.allow_inspection()
        syscalls.set_dumpable(False)
        users.bequeath_no_capabilities()
        syscalls.reset_reserved_signals()
        self._begin()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            # What is handled here, programs have with its default action.
            signal.signal(number, _ignore)
        _thread.start_new_thread(self._work, ())
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            signal.pause()

    def _work(self) -> NoReturn:
        try:
            while self._turn(_IDLE_MS):
                pass
            self._prepare()
            while True:
                self._turn(None)
        finally:
            os._exit(1)

    def _prepare(self) -> None:
        """Import what starts programs, and rehearse it: what a process has done once finds its pages in place."""
        if self._subprocess is None:
            self._subprocess = import_module("subprocess")
            with suppress(OSError):
                self._run(["/"], [0, 1, 2], "/", dict(os.environ))

    def _spawn(self, request: dict[str, Any], fds: list[int]) -> None:
        pid = None
        if not request["terminal"] and not self._cgroup_fds and syscalls.SETS_THREADS_USER:
            # What fails is found out again where it is reported by its step.
            with suppress(OSError, ValueError):
                pid = self._execute(request, fds)
        if pid is None:
            super()._spawn(request, fds)
        else:
            self._record(request, pid, None, kernel=False)
            zygote.close(fds)

    def _execute(self, request: dict[str, Any], fds: list[int]) -> int:
        self._prepare()
        limits: dict[str, int] = request["limits"]
        if limits != self._limits:
            launch.limit(limits)
            if limits["user"] not in (0, self._user):
                # Signals do not go by the gid.
                syscalls.set_thread_group(*3 * (limits["group"] or limits["user"],))
            self._limits = limits
        layer.make(request["env"])
        with _user_code(limits["user"], self._user):
            return self._run(request["argv"], fds, request["cwd"], request["env"])

    def _run(self, argv: list[str], fds: list[int], cwd: str, env: dict[str, str]) -> int:
        streams = dict(zip(("stdin", "stdout", "stderr"), fds, strict=True))
        child = self._subprocess.Popen(argv, **streams, cwd=cwd, env=env, close_fds=False, start_new_session=True)
        # It is reaped here, by its pid.
        child.returncode = 0
        return int(child.pid)

    def _fork_child(self) -> int:
        # It is not the first thread that forks.
        return os.fork()

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
            zygote.close(fds)

    def _adopt(self, request: dict[str, Any], _: list[int]) -> None:
        zygote.deliver(self._kernels, request)

    def _signal(self, request: dict[str, Any], _: list[int]) -> None:
        if request["id"] in self._pids:
            super()._signal(request, _)
        else:
            zygote.deliver(self._kernels, request)

    def _echo(self, request: dict[str, Any], _: list[int]) -> None:
        # The agent waits for the signals before it: this process has sent its own by now.
        zygote.deliver(self._kernels, request)

    def _reap_one(self, pid: int) -> None:
        if pid == self._pid:
            os._exit(0)
        super()._reap_one(pid)


@contextmanager
def _user_code(user: int, own: int) -> Generator[None]:
    """Start this thread's children under user code's uid, if it is another than this process's."""
    if user in (0, own):
        yield
        return
    syscalls.set_thread_user(user, user, own)
    try:
        yield
    finally:
        syscalls.set_thread_user(own, user, own)


def _ignore(_number: int, _frame: object) -> None:
    """Take a signal that is not for this process."""


def run(fds: list[int], site: str) -> None:
    """Run the zygote of user code with the account that comes first: its uid, its gid, and its supplementary gids after
    their number. Descriptors follow it.
    """
    user, group, count, *rest = fds
    groups, rest = rest[:count], rest[count:]
    if user and os.geteuid() == 0:
        users.become_agent(groups)
    syscalls.touch_files_as(user, group)
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
    zygote.ZygoteLoop(control, cgroup_fds, theirs).serve(zygote.import_steps(site, warm=False, later=True))


def _fill_home(home: str) -> None:
    """Copy the caches that the image's build left for the home: they take seconds to fill."""
    with suppress(OSError, shutil.Error):
        shutil.copytree(f"{sys.prefix}/home", home, dirs_exist_ok=True, copy_function=shutil.copyfile)
        os.chmod(home, 0o700)  # noqa: PTH101 - pathlib is a slow import
