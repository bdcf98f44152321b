"""The zygote by itself, with the agent's requests."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandmesh.shared import frames
from sandmeshd.agent.processes.namespaces import control_sockets
from sandmeshd.agent.userland.python import kernel_protocol

from .sandbox import Ground

pytestmark = pytest.mark.needs("user namespaces")

TWO = """
import sys
site, fd = sys.argv[1:]
sys.path.append(site)
from sandmeshd.agent.userland.core import container_zygote
container_zygote.run_two([int(fd)], site)
"""
IGNORING_RESERVED = """
import ctypes, os, sys
ignore = (ctypes.c_ulong * 4)(1)
for number in (32, 33):
    ctypes.CDLL(None).syscall({"x86_64": 13, "aarch64": 134}[os.uname().machine], number, ignore, None, 8)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""As the children of make and of whatever else uses posix_spawn have it."""
LIMITS = {"processes": 0, "file_bytes": 0, "user": 0, "descriptors": 0, "signals": 0}


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

    def fork(self, number: int, theirs: socket.socket | None = None) -> None:
        """Ask for a kernel with a socket, without one it ends as soon as it looks for cells."""
        if theirs is None:
            ours, theirs = socket.socketpair()
            ours.close()
        self._ask({"op": "fork", "id": number}, [theirs.detach(), *(os.open(os.devnull, os.O_RDWR) for _ in range(2))])

    def adopt(self, number: int, pid: int) -> None:
        """Ask to take a process that a kernel is said to have forked."""
        self._ask({"op": "adopt", "id": number, "pid": pid}, [])

    def signal(self, number: int, signal_number: int) -> None:
        """Ask for a signal to what has a number, and for an echo after it."""
        self._ask({"op": "signal", "id": number, "number": signal_number}, [])
        self._ask({"op": "echo", "id": number}, [])

    def children(self) -> list[int]:
        """Return the pids of its children."""
        pid = self.process.pid
        return [int(part) for part in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def _ask(self, request: dict[str, Any], fds: list[int]) -> None:
        complete = {**request, "cwd": self._home, "limits": LIMITS}
        socket.send_fds(self._control, [json.dumps(complete).encode()], fds)
        for fd in fds:
            os.close(fd)


@contextmanager
def zygote_at(ground: Ground, home: Path, *limited: str, program: str = "") -> Generator[Asking]:
    """Return a zygote with a home, `limited` by what comes before its command; `program` runs another one."""
    ours, theirs = control_sockets()
    ours.settimeout(60)
    main = ground.agent / "sandmeshd" / "agent" / "userland" / "__main__.py"
    arguments = ["-c", program, str(ground.agent)] if program else [str(main), "zygote"]
    python = [str(ground.environment / "bin" / "python"), "-I", *arguments, str(theirs.fileno())]
    process = subprocess.Popen([*limited, *python], pass_fds=[theirs.fileno()], env={"HOME": str(home)}, cwd=home)
    theirs.close()
    try:
        yield Asking(process, ours, home)
    finally:
        ours.close()
        process.wait(timeout=60)


def faults(pid: int) -> int:
    """Return how many page faults a process had that needed no disk."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def two_at(ground: Ground, home: Path) -> AbstractContextManager[Asking]:
    """Return the zygote of a container in gVisor, where programs and kernels are forked from two processes."""
    return zygote_at(ground, home, program=TWO)


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


def test_signals_of_the_c_library_that_were_ignored_when_the_mesh_was_started_are_reset(
    ground: Ground, tmp_path: Path
) -> None:
    with zygote_at(ground, tmp_path, sys.executable, "-c", IGNORING_RESERVED) as zygote:
        assert zygote.next() == {"up": True}
        ignored = Path(f"/proc/{zygote.process.pid}/status").read_text()
        assert int(ignored.partition("SigIgn:")[2].split()[0], 16) >> 31 == 0b11
        zygote.spawn(1, "sh", "-c", "grep SigIgn /proc/$$/status > ignored")
        assert zygote.next()["started"] == 1
        assert zygote.next() == {"ended": 1, "status": 0, "failure": None}
        assert (tmp_path / "ignored").read_text().split() == ["SigIgn:", "0" * 16]


def test_in_gvisor_programs_are_started_from_a_process_that_has_imported_nothing_for_kernels(
    ground: Ground, tmp_path: Path
) -> None:
    with two_at(ground, tmp_path) as zygote:
        assert zygote.next() == {"up": True}
        zygote.fork(1)
        assert zygote.next()["started"] == 1
        assert zygote.next()["ended"] == 1
        assert "IPython" not in Path(f"/proc/{zygote.process.pid}/maps").read_text()
        zygote.spawn(2, "sh", "-c", "echo $PPID > parent")
        assert zygote.next()["started"] == 2
        assert zygote.next() == {"ended": 2, "status": 0, "failure": None}
        assert int((tmp_path / "parent").read_text()) == zygote.process.pid
        assert len(zygote.children()) == 1


def test_in_gvisor_a_program_has_a_session_and_signals_as_any_other(ground: Ground, tmp_path: Path) -> None:
    told = "cut -d ' ' -f 1,6 /proc/$$/stat; grep -E 'Sig(Ign|Blk)' /proc/$$/status; ls /proc/$$/fd"
    with two_at(ground, tmp_path) as zygote:
        assert zygote.next() == {"up": True}
        zygote.spawn(2, "sh", "-c", f"({told}) > told")
        started = zygote.next()
        assert zygote.next() == {"ended": 2, "status": 0, "failure": None}
        pid, session, *rest = (tmp_path / "told").read_text().split()
        assert started == {"started": 2, "pid": int(pid)}
        assert pid == session
        assert rest == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16, "0", "1", "2"]
        zygote.spawn(3, "sh", "-c", "kill -TERM $$")
        assert zygote.next()["started"] == 3
        assert os.WTERMSIG(zygote.next()["status"]) == signal.SIGTERM


def test_in_gvisor_programs_start_beside_others_that_fail_or_have_long_commands(ground: Ground, tmp_path: Path) -> None:
    with two_at(ground, tmp_path) as zygote:
        assert zygote.next() == {"up": True}
        for number in (1, 2, 3):
            zygote.spawn(number, "sleep", "60")
            assert zygote.next()["started"] == number
        zygote.spawn(4, "sh", "-c", ": " + "x" * 100_000)
        assert zygote.next()["started"] == 4
        assert zygote.next() == {"ended": 4, "status": 0, "failure": None}
        zygote.spawn(5, "/nowhere/at-all")
        assert zygote.next()["started"] == 5
        failure = {"errno": errno.ENOENT, "step": "program"}
        assert zygote.next() == {"ended": 5, "status": 127 << 8, "failure": failure}
        for number in (1, 2, 3):
            zygote.signal(number, signal.SIGKILL)
        reports = sorted((zygote.next() for _ in range(6)), key=str)
        assert [report.get("echo") or report["ended"] for report in reports] == [1, 2, 3, 1, 2, 3]


def test_in_gvisor_nothing_of_the_process_that_programs_start_from_is_copied(ground: Ground, tmp_path: Path) -> None:
    with two_at(ground, tmp_path) as zygote:
        assert zygote.next() == {"up": True}
        for number in (1, 2):
            zygote.spawn(number, "true")
            assert zygote.next()["started"] == number
            assert zygote.next()["ended"] == number
        before = faults(zygote.process.pid)
        for number in range(3, 23):
            zygote.spawn(number, "true")
            assert zygote.next()["started"] == number
            assert zygote.next() == {"ended": number, "status": 0, "failure": None}
        # A fork would have it copy a hundred pages each time.
        assert faults(zygote.process.pid) - before < 200


def test_in_gvisor_the_end_of_the_process_that_kernels_are_forked_from_is_the_zygotes(
    ground: Ground, tmp_path: Path
) -> None:
    with two_at(ground, tmp_path) as zygote:
        assert zygote.next() == {"up": True}
        os.kill(zygote.children()[0], signal.SIGKILL)
        assert zygote.process.wait(60) == 0


@pytest.mark.parametrize("start", [zygote_at, two_at])
def test_only_children_that_are_no_others_are_adopted(
    ground: Ground, tmp_path: Path, start: Callable[[Ground, Path], AbstractContextManager[Asking]]
) -> None:
    with start(ground, tmp_path) as zygote:
        assert zygote.next() == {"up": True}
        zygote.spawn(1, "sleep", "60")
        known = zygote.next()["pid"]
        refused = {"errno": errno.ESRCH, "step": "adopt"}
        for number, pid in enumerate((0 if start is two_at else known, 1, os.getpid(), -1, 1 << 40), start=2):
            zygote.adopt(number, pid)
            assert zygote.next() == {"refused": number, **refused}
        zygote.signal(1, signal.SIGKILL)
        assert zygote.next() in ({"echo": 1}, {"ended": 1, "status": 9, "failure": None})


@pytest.mark.parametrize("start", [zygote_at, two_at])
def test_an_orphan_is_adopted_signalled_and_reported(
    ground: Ground, tmp_path: Path, start: Callable[[Ground, Path], AbstractContextManager[Asking]]
) -> None:
    connection, theirs = socket.socketpair()
    code = "import os, time\npid = os.fork()\nif pid == 0 and os.fork() == 0: time.sleep(60)\nif pid == 0: os._exit(0)"
    with start(ground, tmp_path) as zygote, connection:
        assert zygote.next() == {"up": True}
        zygote.fork(1, theirs)
        kernel = zygote.next()["pid"]
        connection.sendall(frames.pack(kernel_protocol.RUN + code.encode() + b"\nos.waitpid(pid, 0)"))
        assert connection.recv(4) != b""
        parent = int(Path(f"/proc/{kernel}/stat").read_text().rpartition(")")[2].split()[1])
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        (orphan,) = {int(child) for child in children} - {kernel}
        zygote.adopt(2, orphan)
        assert zygote.next() == {"started": 2, "pid": orphan}
        zygote.signal(2, signal.SIGKILL)
        assert sorted((zygote.next() for _ in range(2)), key=str) == [
            {"echo": 2},
            {"ended": 2, "status": 9, "failure": None},
        ]
