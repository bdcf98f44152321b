"""A run of tests whose process dies is finished by a second one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import resuming

TESTS = """
import os
from pathlib import Path

def test_first():
    with Path("ran").open("a") as file:
        file.write("first ")

def test_dies_once():
    with Path("ran").open("a") as file:
        file.write("dies ")
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), 9)

def test_last():
    with Path("ran").open("a") as file:
        file.write("last ")
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, resuming.FINISHED: str(folder / "finished")}
    command = [sys.executable, "-m", "pytest", "-p", "resuming", "-p", "no:cacheprovider", "test_three.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_a_second_run_does_what_the_first_did_not_finish(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(TESTS)
    shutil.copy(resuming.__file__, tmp_path / "resuming.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")

    died, finished = run(tmp_path), run(tmp_path)

    assert died.returncode == -9
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "2 passed, 1 deselected" in finished.stdout
    assert (tmp_path / "ran").read_text() == "first dies dies last "
    begun = (tmp_path / "finished").read_text().splitlines()
    assert begun[:3] == ["begun test_three.py::test_first", "ended test_three.py::test_first", begun[2]]
    assert begun[2] == "begun test_three.py::test_dies_once"
