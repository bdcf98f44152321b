"""What the repository may not have in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".venv", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis", "demo-output", "build", "dist"}

# Written in pieces so that this file does not hold what it looks for.
FORBIDDEN = {
    "a path of one machine": re.compile(r"/(?:" + "wo" + r"rk|home/[a-z]\w*|Users/\w+|root/\.\w+)/"),
    "unfinished work": re.compile(r"\b(?:" + "TO" + "DO|FIX" + "ME|XX" + "X|HA" + r"CK)\b"),
    "a body that is missing": re.compile("NotImplemented" + "Error"),
    "a file without checks": re.compile(  # stricter settings are welcome
        r"^# (?:ruff: noqa|mypy: ignore|pyright: (?:basic|ignore|.*=false))", re.MULTILINE
    ),
}


def repository_files() -> list[Path]:
    """Give the files that are or will be committed; all files where this is no clone."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        names = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        names = list(ROOT.rglob("*"))
    return sorted(path for path in names if path.is_file() and SKIPPED.isdisjoint(path.relative_to(ROOT).parts))


def texts() -> dict[str, str]:
    """Give the handwritten files' texts by name."""
    found: dict[str, str] = {}
    for path in repository_files():
        name = str(path.relative_to(ROOT))
        if not name.startswith("sdk/sandmesh/api/") and "/console/vendor/" not in name:
            found[name] = path.read_bytes().decode(errors="ignore")
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds_what_does_not_belong(what: str) -> None:
    found = {name: match[0] for name, text in texts().items() if (match := FORBIDDEN[what].search(text))}
    assert found == {}


def test_the_patterns_find_what_they_look_for() -> None:
    bad = ("/" + "home/ada/x", "# TO" + "DO: later", "raise NotImplemented" + "Error", "# ruff: " + "noqa")
    assert all(pattern.search(text) for pattern, text in zip(FORBIDDEN.values(), bad, strict=True))


def test_the_readme_stays_short() -> None:
    lines = len((ROOT / "README.md").read_text().splitlines())
    assert lines < 130


def test_no_file_is_large() -> None:
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in repository_files()}
    assert {name: size for name, size in sizes.items() if size > 512 * 1024} == {}


def test_the_version_has_its_place_in_the_changelog() -> None:
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
