"""Who can read what, for a uid without groups, as sandboxes' processes have when the mesh runs as root."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def can_read(path: Path, uid: int) -> bool:
    """Return whether `uid` can pass to a file or directory and read and, as its owner's bits are, run or list it."""
    try:
        real = path.resolve(strict=True)
        if uid == os.geteuid():
            return os.access(real, os.R_OK | os.X_OK)
        return _allows(real, uid, 0o5) and all(_allows(parent, uid, 0o1) for parent in real.parents)
    except OSError:
        return False


def _allows(path: Path, uid: int, bits: int) -> bool:
    found = path.stat()
    shift = 6 if found.st_uid == uid else 0
    return (stat.S_IMODE(found.st_mode) >> shift) & bits == bits


def open_to_all(folder: Path) -> None:
    """Make a tree readable for everybody, and what its owner can run or list too; symbolic links are not followed."""
    for root, _, names in os.walk(folder):
        _open(Path(root))
        for name in names:
            _open(Path(root, name))


def _open(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return
    wanted = stat.S_IMODE(mode) | (0o555 if mode & 0o100 else 0o444)
    if wanted != stat.S_IMODE(mode):
        path.chmod(wanted)
