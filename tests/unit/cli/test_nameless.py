"""Users of whom the machine knows no name and no home, as in a container that was given a number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NUMBER = 65434

pytestmark = pytest.mark.needs("root")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", *arguments],
        cwd=Path(__file__).parents[3],
        env={},
        user=NUMBER,
        group=NUMBER,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_user_without_a_name_goes_by_its_number() -> None:
    done = _run("-c", "from sandmeshd.cli.terminal.connection import own_user; print(own_user())")
    assert (done.stdout, done.stderr) == (f"uid-{NUMBER}\n", "")


@pytest.mark.parametrize("command", ["up", "doctor"])
def test_a_user_without_a_home_is_told_what_to_set(command: str) -> None:
    done = _run("-m", "sandmeshd.cli.user", command)
    assert done.returncode == 2
    assert "SANDMESH_STATE_DIRECTORY" in done.stderr
    assert "Traceback" not in done.stderr
