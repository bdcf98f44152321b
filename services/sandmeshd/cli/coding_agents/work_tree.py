"""What a folder has: each file and link by its path, with what tells whether it changed. No link is followed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.shared.files.ignore_patterns import IgnorePatterns

GIT: Final = ".git"
"""What has settings and hooks that git runs, at any level: it is never part of what is compared or applied."""
_IGNORE: Final = ".gitignore"
# Settings may have passwords in addresses, and hooks are programs of this machine.
NEVER_COPIED: Final = ("/.git/config", "/.git/hooks/")


@dataclass(frozen=True)
class TreeEntry:
    """A file, by its digest and whether it can be executed, or a link, by its target."""

    kind: str
    """`file`, `link`, or `other` for what is neither."""
    value: str
    executable: bool = False


def scan(root: Path, patterns: Sequence[str]) -> dict[str, TreeEntry]:
    """Return what a folder has by path, without what the patterns leave out and without git's own folders.

    Raises:
        OSError: Some of it cannot be read.
    """
    return dict(_scan(root, "", IgnorePatterns(patterns)))


def _scan(root: Path, prefix: str, patterns: IgnorePatterns) -> Iterator[tuple[str, TreeEntry]]:
    with os.scandir(root / prefix) as found:
        entries = sorted(found, key=lambda one: one.name)
    for entry in entries:
        path = f"{prefix}{entry.name}"
        is_directory = entry.is_dir(follow_symlinks=False)
        if entry.name == GIT or patterns.leave_out(path, is_directory=is_directory):
            continue
        if is_directory:
            yield from _scan(root, f"{path}/", patterns)
        elif (one := entry_at(root, path)) is not None and one.kind != "other":
            yield path, one


def entry_at(root: Path, path: str) -> TreeEntry | None:
    """Return what is at a path, None where nothing is; what is below a link counts as `other`.

    Raises:
        OSError: It cannot be read.
    """
    whole = root / path
    try:
        if has_linked_parent(root, path):
            return TreeEntry("other", "")
        found = whole.lstat()
        if stat.S_ISLNK(found.st_mode):
            return TreeEntry("link", str(whole.readlink()))
        if not stat.S_ISREG(found.st_mode):
            return TreeEntry("other", "")
        with whole.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return TreeEntry("file", digest, bool(found.st_mode & 0o100))
    except (FileNotFoundError, NotADirectoryError):
        return None


def has_linked_parent(root: Path, path: str) -> bool:
    """Return whether a folder above a path, below the root, is a link."""
    parts = Path(path).parts[:-1]
    return any(root.joinpath(*parts[:number]).is_symlink() for number in range(1, len(parts) + 1))


def ignored(root: Path) -> list[str]:
    """Return the patterns of every `.gitignore` of a folder, as the root's own would have them."""
    patterns: list[str] = []
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name != GIT]
        at = os.path.relpath(folder, root)
        # What is below a folder that is left out is not read.
        if at != "." and IgnorePatterns(patterns).leave_out(at, is_directory=True):
            names.clear()
        elif _IGNORE in files:
            patterns += _patterns(Path(folder, _IGNORE), "" if at == "." else f"{at}/")
    return patterns


def _patterns(file: Path, prefix: str) -> Iterator[str]:
    for line in file.read_text("utf-8", "replace").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        sign, text = ("!", text[1:]) if text.startswith("!") else ("", text)
        anchored = "/" in text.rstrip("/")
        yield (
            f"{sign}/{prefix}{text.lstrip('/')}" if anchored else f"{sign}{prefix}**/{text}" if prefix else sign + text
        )
