"""`run` and `exec`: a program in a sandbox as if it ran here."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.mesh.commands import Commands, running_mesh


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh for the file."""
    with running_mesh() as commands:
        yield commands


def test_output_input_and_exit_code_are_the_programs_own(sandmesh: Commands) -> None:
    done = sandmesh.run("run", "--", "sh", "-c", "cat; echo oh >&2; exit 7", stdin="hi\n", ok=False)
    assert (done.code, done.out, done.err) == (7, "hi\n", "oh\n")


def test_options_after_the_program_are_the_programs(sandmesh: Commands) -> None:
    assert sandmesh.run("run", "-e", "NAME=Ada", "sh", "-c", "echo $NAME $0", "-e").out == "Ada -e\n"


def test_a_local_file_runs_with_its_arguments(sandmesh: Commands, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import sys; print(sys.argv[1:], sys.stdin.read())")
    assert sandmesh.run("run", str(tmp_path / "job.py"), "--fast", "a b", stdin="in").out == "['--fast', 'a b'] in\n"


def test_code_runs(sandmesh: Commands) -> None:
    assert sandmesh.run("run", "-c", "print(6 * 7)").out == "42\n"
    assert sandmesh.run("python", "-", stdin="6 * 7").out.strip() == "42"


def test_what_is_not_there_inside_is_said_with_a_shells_code(sandmesh: Commands) -> None:
    done = sandmesh.run("run", "--", "no-such-program", ok=False)
    assert done.code == 127
    assert "No such file" in done.err


def test_a_time_limit_ends_it_with_124(sandmesh: Commands) -> None:
    assert sandmesh.run("run", "--timeout", "1", "--", "sleep", "60", ok=False).code == 124


@pytest.mark.needs("control groups")
def test_a_program_that_ran_out_of_memory_is_told_so(sandmesh: Commands) -> None:
    done = sandmesh.run("run", "--limit", "memory=64MiB", "--", "python3", "-c", "bytearray(10**9)", ok=False)
    assert (done.code, done.out) == (137, "")
    assert "may use 64 MiB together" in done.err


def test_what_the_mesh_refuses_has_a_code_that_no_program_is_mistaken_for(sandmesh: Commands) -> None:
    done = sandmesh.run("exec", "sb_none", "--", "true", ok=False)
    assert done.code == 125
    assert "SANDBOX_NOT_FOUND" in done.err
    assert sandmesh.run("run", "-t", "no-such-template", "--", "true", ok=False).code == 125
    assert sandmesh.run("run", ok=False).code == 2


def test_sessions_come_back_and_no_rm_leaves_the_sandbox(sandmesh: Commands) -> None:
    write = ("sh", "-c", "echo x >> f; wc -l < f")
    assert sandmesh.run("run", "--session", "s", "--", *write).out.strip() == "1"
    assert sandmesh.run("run", "--session", "s", "--", *write).out.strip() == "2"
    done = sandmesh.run("run", "--no-rm", "-l", "kept=yes", "--", "true")
    sandbox_id = done.err.split()[0]
    assert sandmesh.run("ls", "-l", "kept=yes", "-o", "id").out.strip() == sandbox_id
    assert sandmesh.run("exec", sandbox_id, "--", "echo", "it's $HOME").out == "it's $HOME\n"
    sandmesh.run("kill", "--all")
    assert sandmesh.run("ls", "-o", "id").out == ""


def started(process: subprocess.Popen[bytes]) -> None:
    """Wait until what runs has written its first line."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 3), (signal.SIGTERM, 4)])
def test_a_signal_goes_to_the_program_which_decides(sandmesh: Commands, number: int, code: int) -> None:
    script = "trap 'exit 3' INT; trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done"
    process = sandmesh.start("run", "--", "bash", "-c", script)
    try:
        started(process)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code
    assert b"Traceback" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_ends_what_does_not_listen(sandmesh: Commands, number: int, code: int) -> None:
    script = "trap 'echo heard' INT TERM; echo ready; while :; do sleep 0.05; done"
    process = sandmesh.start("run", "--", "bash", "-c", script)
    try:
        started(process)
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.readline() == b"heard\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code
    assert b"Traceback" not in err
    assert sandmesh.run("ls", "-o", "id").out == ""


def test_a_reader_that_has_enough_ends_it_quietly(sandmesh: Commands) -> None:
    process = sandmesh.start("run", "--", "yes", "ready")
    try:
        started(process)
        assert process.stdout is not None
        process.stdout.close()
        process.wait(30)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
    finally:
        process.kill()
        process.wait()
    assert sandmesh.run("ls", "-o", "id").out == ""


def test_settings_say_where_they_came_from(sandmesh: Commands) -> None:
    hidden = "s3cret"
    done = sandmesh.run("config", "show", "-o", "json", SANDMESH_BEARER_TOKEN=hidden)
    rows = {row["name"]: row for row in done.json}
    assert rows["mesh_id"] == {**rows["mesh_id"], "value": sandmesh.settings.mesh_id, "source": "SANDMESH_MESH_ID"}
    assert rows["max_sandboxes"]["source"] == "default"
    assert rows["bearer_token"]["source"] == "SANDMESH_BEARER_TOKEN"
    assert hidden not in done.out
