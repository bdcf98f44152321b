"""`sandmeshd agent` where it is not the agent of anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "sandmeshd.cli.service", "agent"]
ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]


def test_an_agent_that_is_not_pid_1_says_who_starts_it() -> None:
    ended = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "PID 1" in ended.stderr
    assert "sandmeshd driver docker" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.needs("user namespaces")
def test_an_image_that_is_run_by_hand_says_what_is_missing(tmp_path: Path) -> None:
    ended = subprocess.run([*ALONE, *COMMAND, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert f"{tmp_path / 'config'} does not exist" in ended.stderr
    assert "entry point" in ended.stderr
