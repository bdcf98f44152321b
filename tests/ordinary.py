"""Tests once more as an ordinary user, where root runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandmeshd.runtime.paths import default_state_directory
from sandmeshd.runtime.user_namespaces.removal import remove_tree

ORDINARY_UID = 65433
SUBORDINATE = range(2_100_000_000, 2_100_065_536)
"""The subordinate uids and gids of that user, where a test grants it some."""

_GRANTED = """
mount --make-rprivate /
for name in passwd subuid subgid; do
    [ -e "/etc/$name" ] || touch "/etc/$name"
    mount --bind "$1/$name" "/etc/$name"
done
shift
exec "$@"
"""


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


@contextmanager
def subordinate_home() -> Generator[Path]:
    """Yield the home of an ordinary user to whom `run_as_subordinate` grants subordinate uids."""
    with ordinary_home() as home:
        etc = home / "etc"
        etc.mkdir(mode=0o755)
        user = f"ordinary:x:{ORDINARY_UID}:{ORDINARY_UID}::{home}:/bin/sh\n"
        (etc / "passwd").write_text(Path("/etc/passwd").read_text() + user)
        for name in ("subuid", "subgid"):
            (etc / name).write_text(f"ordinary:{SUBORDINATE.start}:{len(SUBORDINATE)}\n")
        yield home


def run_as_subordinate(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as an ordinary user who has subordinate uids, which no other process of the machine sees."""
    user = ("setpriv", f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups", "--")
    granted = ("unshare", "--mount", "sh", "-ec", _GRANTED, "sh", str(home / "etc"))
    return _run(home, (*granted, *user, *command))


def run_as_ordinary(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this repository's as that user, and return it with what it printed."""
    return _run(home, command, user=ORDINARY_UID, group=ORDINARY_UID, extra_groups=[])


def _run(home: Path, command: tuple[str, ...], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        env={
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "PATH": os.environ["PATH"],
            **{name: value for name, value in os.environ.items() if name == "SANDMESH_TEST_DEBIAN"},
        },
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def run_tests(home: Path, *arguments: str) -> None:
    """Run tests as that user; what they print is the message where one fails."""
    run = run_as_subordinate if (home / "etc").exists() else run_as_ordinary
    done = run(home, sys.executable, "-B", "-m", "pytest", "-q", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
