"""Patterns of paths that are left out, compared with what Git itself does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sandmesh import errors
from sandmesh.shared.files.ignore_patterns import IgnorePatterns

FILES = (
    *(
        "a.log",
        "b.txt",
        "#x",
        "!y",
        "sp ace",
        "trail ",
        "x[1]",
        "d/a.log",
        "d/e/f.txt",
        "d/e/g/h",
        "build/out",
        "src/build/o",
    ),
    *("foo/bar/baz", "a/b/c/d/e", "docs/x.md", "docs/sub/x.md", "A.LOG", "café", "q?", "z/.hidden", ".venv/bin/python"),
)
PATTERNS = (
    *("*.log", "/*.log", "d/", "d", "/d", "d/e", "e/", "**/build", "build/", "/build", "src/**", "a/**/e", "**/b/c"),
    *("foo/*/baz", "foo/*", "docs/*.md", "docs/**/*.md", "[ab]*", "[!a]*", "[^a]*", "?.txt", "\\#x", "\\!y", "# x", ""),
    *(
        "x[[]1]",
        "x\\[1\\]",
        "sp ace",
        "trail\\ ",
        "q\\?",
        "*",
        "*/",
        ".venv",
        ".*",
        "[a-c].txt",
        "a.lo[g",
        "**",
    ),
)
LISTS = (
    *([one] for one in PATTERNS),
    *(["*.log", "!a.log"], ["*", "!*/", "!b.txt"], ["d/*", "!d/a.log"], ["d/", "!d/a.log"], ["!a.log", "*.log"]),
)


def kept_by(patterns: IgnorePatterns, root: Path, prefix: str = "") -> set[str]:
    """Return the files that are not left out, as a walk finds them."""
    found: set[str] = set()
    for path in root.iterdir():
        name = prefix + path.name
        if not patterns.leave_out(name, is_directory=path.is_dir()):
            found |= kept_by(patterns, path, f"{name}/") if path.is_dir() else {name}
    return found


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository of files."""
    root = tmp_path_factory.mktemp("repository")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    subprocess.run(["git", "init", "-q", root], check=True)  # noqa: S607 - of the machine, here and below
    return root


@pytest.mark.parametrize("patterns", LISTS, ids=str)
def test_patterns_leave_out_what_git_ignores(repository: Path, patterns: list[str]) -> None:
    (repository / ".git/info/exclude").write_text("\n".join(patterns) + "\n")
    listed = subprocess.run(
        ["git", "-C", repository, "ls-files", "-z", "--others", "--exclude-standard"],  # noqa: S607
        check=True,
        capture_output=True,
    )
    by_git = {name.decode() for name in listed.stdout.split(b"\0") if name}
    ours = {name for name in kept_by(IgnorePatterns([*patterns, "!/.git"]), repository) if not name.startswith(".git/")}
    assert ours == by_git


@pytest.mark.parametrize("patterns", [["[z-a]"], ["x"] * 1001, ["x" * 5000]])
def test_what_cannot_be_a_pattern_is_refused(patterns: list[str]) -> None:
    with pytest.raises(errors.InvalidArgument, match="exclude"):
        IgnorePatterns(patterns)
