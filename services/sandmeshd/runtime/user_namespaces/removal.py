"""Removes trees of any depth and any modes; no link is followed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandmeshd.runtime.user_namespaces.subordinate import remove_as_owner

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory and everything in it; one that is not there is fine. Nothing may write to it meanwhile.

    Raises:
        PermissionError: Something in it is neither this user's nor of a subordinate uid.
    """
    try:
        _remove(path)
    except PermissionError:
        if not remove_as_owner(path):
            raise


def _remove(path: Path) -> None:
    try:
        path.chmod(0o700)
        root = os.open(path, _FOLDER)
    except FileNotFoundError:
        return
    try:
        names = (f".{secrets.token_hex(8)}" for _ in iter(int, 1))
        _flatten(root, names)
    finally:
        os.close(root)
    path.rmdir()


def _flatten(root: int, names: Iterator[str]) -> None:
    # Directories are moved up to the root before they are emptied, so that depth costs neither stack nor descriptors.
    pending = _empty(root, root, names)
    while pending:
        name = pending.pop()
        folder = os.open(name, _FOLDER, dir_fd=root)
        try:
            pending += _empty(folder, root, names)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=root)


def _empty(folder: int, root: int, names: Iterator[str]) -> list[str]:
    moved: list[str] = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            with suppress(PermissionError):
                # It may be open to this user though it is another's.
                os.chmod(entry.name, 0o700, dir_fd=folder)
            moved.append(next(names))
            os.rename(entry.name, moved[-1], src_dir_fd=folder, dst_dir_fd=root)
    return moved
