"""The conformance suite on the bubblewrap driver; as root a second time as an ordinary user."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandmeshd.drivers.bubblewrap.removal import remove_tree
from sandmeshd.drivers.conformance import REQUIREMENTS, Requirement, Subject
from sandmeshd.runtime.paths import default_state_directory

ORDINARY_UID = 65433
SOME = "test_conformance and (direct-fork or grpc-exec)"
"""What an ordinary user repeats: each way to start and each way to call once."""


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject) -> None:
    await requirement(subject)


@pytest.fixture
def home(prepared: None) -> Iterator[Path]:
    """Give the home of an ordinary user, who shares root's environments instead of building them again."""
    made = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    shared = made / ".local" / "state" / "sandmesh" / "cache" / "environments"
    shared.mkdir(parents=True)
    (made / "run").mkdir(mode=0o700)
    for built in (default_state_directory() / "cache" / "environments").glob("[0-9a-f]*"):
        (shared / built.name).symlink_to(built)
    for path in (made, *made.rglob("*")):
        os.chown(path, ORDINARY_UID, ORDINARY_UID, follow_symlinks=False)
    yield made
    remove_tree(made)


@pytest.mark.needs("root")
@pytest.mark.timeout(300)
def test_the_suite_passes_as_an_ordinary_user(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", str(Path(__file__)), "-k", SOME],
        cwd=Path(__file__).parents[2],
        env={"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "PATH": os.environ["PATH"]},
        user=ORDINARY_UID,
        group=ORDINARY_UID,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
