"""Notes of where services listen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sandmeshd.runtime.listeners import Listeners

KILLED = """
import os, signal, sys
from pathlib import Path
from sandmeshd.runtime.listeners import Listeners
with Listeners(Path(sys.argv[1])).noted(["127.0.0.1:9"]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_notes_of_killed_processes_go_when_the_next_one_starts(tmp_path: Path) -> None:
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60).returncode == -9
        assert len(list(tmp_path.iterdir())) == 1
    with Listeners(tmp_path).noted(["127.0.0.1:8"]):
        assert len(list(tmp_path.iterdir())) == 1
        assert Listeners(tmp_path).all() == {("127.0.0.1", 8)}
    assert list(tmp_path.iterdir()) == []
