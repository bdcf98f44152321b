"""Tests once more as an ordinary user, where root runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sandmeshd.drivers.node.removal import remove_tree
from sandmeshd.runtime.paths import default_state_directory

ORDINARY_UID = 65433


@contextmanager
def ordinary_home() -> Generator[Path]:
    """Yield the home of an ordinary user, who shares root's environments instead of building them again."""
    made = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    shared = made / ".local" / "state" / "sandmesh" / "cache" / "environments"
    shared.mkdir(parents=True)
    (made / "run").mkdir(mode=0o700)
    for built in (default_state_directory() / "cache" / "environments").glob("[0-9a-f]*"):
        (shared / built.name).symlink_to(built)
    for path in (made, *made.rglob("*")):
        os.chown(path, ORDINARY_UID, ORDINARY_UID, follow_symlinks=False)
    try:
        yield made
    finally:
        remove_tree(made)


def run_as_ordinary(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this repository's as that user, and return it with what it printed."""
    return subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        env={"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "PATH": os.environ["PATH"]},
        user=ORDINARY_UID,
        group=ORDINARY_UID,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )


def run_tests(home: Path, *arguments: str) -> None:
    """Run tests as that user; what they print is the message where one fails."""
    done = run_as_ordinary(home, sys.executable, "-B", "-m", "pytest", "-q", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
