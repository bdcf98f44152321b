"""What watches the tests sees what it should."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from itertools import chain, repeat
from pathlib import Path

import pytest

from tests import leaks
from tests.parts import part_of

ROOT = Path(__file__).resolve().parents[2]

FORGOTTEN = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.close(1)
        os.execve("/bin/sleep", ["sleep", "60"], {})
    os._exit(0)
os.wait()
"""

NEEDY = """
import pytest

@pytest.mark.needs("nothing that is known")
def test_one() -> None: ...

def test_two() -> None:
    pytest.skip("just so")
"""


def test_a_process_that_left_its_session_parent_and_environment_is_found() -> None:
    started = subprocess.run([sys.executable, "-c", FORGOTTEN], stdout=subprocess.PIPE, check=True)
    pid = int(started.stdout)
    try:
        assert pid in leaks.marked_processes(leaks.mark_process())
    finally:
        os.kill(pid, signal.SIGKILL)
    leaks.wait_for_ends(iter([pid]), 5)
    assert pid not in leaks.marked_processes(leaks.mark_process())


def test_a_folder_that_is_left_is_named() -> None:
    before = leaks.Machine(frozenset({"/old"}), frozenset(), frozenset({"kept"}))
    after = leaks.Machine(frozenset({"/old", "/new"}), frozenset(), frozenset({"kept", "left"}))
    assert after.left_since(before) == ["mount /new", "folder left"]
    assert before.left_since(after) == []


def test_what_others_had_for_a_moment_is_not_counted() -> None:
    def with_folders(*names: str) -> leaks.Machine:
        return leaks.Machine(frozenset(), frozenset(), frozenset(names))

    looks = chain([with_folders("kept", "left", "theirs")], repeat(with_folders("left", "theirs too")))
    stays = leaks.settled(lambda: next(looks), with_folders("kept"), 1.5 * leaks.POLL_SECONDS)
    assert stays.left_since(with_folders("kept")) == ["folder left"]


def test_a_control_group_in_which_somebody_elses_process_lives_is_not_counted(tmp_path: Path) -> None:
    mark = leaks.mark_process()
    members = tmp_path / "cgroup.procs"
    members.write_text(f"{os.getpid()}\n")
    assert not leaks.has_others(tmp_path, mark)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as theirs:
        resource.prlimit(theirs.pid, resource.RLIMIT_MSGQUEUE, (mark - 1, mark - 1))
        members.write_text(f"{os.getpid()}\n{theirs.pid}\n")
        assert leaks.has_others(tmp_path, mark)
        # A sandbox with limits has its processes in two groups inside its own.
        (tmp_path / "sandbox" / "user").mkdir(parents=True)
        members.rename(tmp_path / "sandbox" / "user" / "cgroup.procs")
        assert leaks.has_others(tmp_path / "sandbox", mark)
        theirs.kill()
    assert not leaks.has_others(tmp_path / "gone", mark)


@pytest.mark.parametrize(("require", "expected"), [("", "1 skipped, 1 error"), ("all", "1 failed, 1 error")])
def test_a_skip_is_a_failure_where_everything_is_required(tmp_path: Path, require: str, expected: str) -> None:
    file = tmp_path / "test_needy.py"
    file.write_text(NEEDY)
    command = [sys.executable, "-m", "pytest", "-p", "tests.needs", "-q", "--rootdir", str(tmp_path), str(file)]
    environment = {**os.environ, "SANDMESH_TEST_REQUIRE": require}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert expected in done.stdout.splitlines()[-1]


def test_a_part_is_the_folder_below_tests() -> None:
    assert part_of("tests/mesh/cli/test_demo.py::test_x[tests/unit]") == "mesh"
    assert part_of("tests/test_x.py::test_y") == "other"
