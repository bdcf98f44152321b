"""The zygote by itself, with the agent's requests."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandmeshd.agent.processes.namespaces import control_sockets

from .sandbox import Ground

pytestmark = pytest.mark.needs("user namespaces")

LIMITS = {"processes": 0, "file_bytes": 0, "user": 0}


class Asking:
    """A zygote that runs, and its control socket."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, home: Path) -> None:
        self.process = process
        self._control = control
        self._home = str(home)

    def next(self) -> dict[str, Any]:
        """Return its next report."""
        report: dict[str, Any] = json.loads(self._control.recv(65_536))
        return report

    def spawn(self, number: int, *argv: str) -> None:
        """Ask for a program."""
        env = {"PATH": "/usr/bin:/bin", "HOME": self._home}
        request = {"op": "spawn", "argv": argv, "env": env, "terminal": False, "whole": False}
        self._ask({**request, "id": number}, [os.open(os.devnull, os.O_RDWR) for _ in range(3)])

    def fork(self, number: int) -> None:
        """Ask for a kernel, which ends as soon as it looks for cells."""
        ours, theirs = socket.socketpair()
        ours.close()
        self._ask({"op": "fork", "id": number}, [theirs.detach(), *(os.open(os.devnull, os.O_RDWR) for _ in range(2))])

    def _ask(self, request: dict[str, Any], fds: list[int]) -> None:
        complete = {**request, "cwd": self._home, "limits": LIMITS}
        socket.send_fds(self._control, [json.dumps(complete).encode()], fds)
        for fd in fds:
            os.close(fd)


@contextmanager
def zygote_at(ground: Ground, home: Path, *limited: str) -> Generator[Asking]:
    """Return a zygote with a home, `limited` by what comes before its command."""
    ours, theirs = control_sockets()
    ours.settimeout(60)
    program = ground.agent / "sandmeshd" / "agent" / "userland" / "__main__.py"
    python = [str(ground.environment / "bin" / "python"), "-I", str(program), "zygote", str(theirs.fileno())]
    process = subprocess.Popen([*limited, *python], pass_fds=[theirs.fileno()], env={"HOME": str(home)}, cwd=home)
    theirs.close()
    try:
        yield Asking(process, ours, home)
    finally:
        ours.close()
        process.wait(timeout=60)


def test_what_kernels_cannot_write_holds_them_up_and_nothing_else(ground: Ground, tmp_path: Path) -> None:
    in_the_way = tmp_path / ".ipython" / "profile_default"
    in_the_way.parent.mkdir()
    in_the_way.touch()
    with zygote_at(ground, tmp_path) as zygote:
        assert zygote.next() == {"up": True}
        zygote.fork(1)
        assert zygote.next() == {"refused": 1, "errno": errno.EIO, "step": "kernel"}
        zygote.spawn(2, "true")
        assert zygote.next()["started"] == 2
        assert zygote.next() == {"ended": 2, "status": 0, "failure": None}
        in_the_way.unlink()
        zygote.fork(3)
        assert zygote.next()["started"] == 3
        assert zygote.next()["ended"] == 3


def test_a_kernel_comes_up_where_nothing_can_be_written(ground: Ground, tmp_path: Path) -> None:
    with zygote_at(ground, tmp_path, "prlimit", "--fsize=0:unlimited", "--") as zygote:
        assert zygote.next() == {"up": True}
        zygote.fork(1)
        assert zygote.next()["started"] == 1
        assert zygote.next()["ended"] == 1


def test_signals_that_were_ignored_when_the_mesh_was_started_end_programs(ground: Ground, tmp_path: Path) -> None:
    with zygote_at(ground, tmp_path, "env", "--ignore-signal=HUP,QUIT,TERM") as zygote:
        assert zygote.next() == {"up": True}
        for number, name in ((signal.SIGHUP, "HUP"), (signal.SIGQUIT, "QUIT"), (signal.SIGTERM, "TERM")):
            zygote.spawn(number, "sh", "-c", f"kill -{name} $$")
            assert zygote.next()["started"] == number
            assert os.WTERMSIG(zygote.next()["status"]) == number
