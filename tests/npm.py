"""Node's packages, from an index that may be slow or falter."""

from __future__ import annotations

import subprocess
from pathlib import Path

ATTEMPTS, SECONDS = 3, 240
OPTIONS = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=5", "--fetch-timeout=60000")


def install(folder: Path, *npm: str) -> None:
    """Install what the lock file of a folder says."""
    command = [*npm, "ci", *OPTIONS, "--cache", str(folder / "cache")]
    said = ""
    for _ in range(ATTEMPTS):
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            said = str(late)
            continue
        if done.returncode == 0:
            return
        said = done.stderr
    raise AssertionError(said)
