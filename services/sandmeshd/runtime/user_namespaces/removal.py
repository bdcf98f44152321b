"""Removes trees of any depth and any modes; no link is followed."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandmeshd.runtime.user_namespaces.subordinate import remove_as_owner

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory and everything in it; one that is not there is fine. Nothing may write to it meanwhile.

    Another that removes it is waited for: a command may open the driver of a mesh that runs.

    Raises:
        PermissionError: Something in it is neither this user's nor of a subordinate uid.
    """
    deque(removal_steps(path), maxlen=0)


def removal_steps(path: Path) -> Iterator[None]:
    """Remove a tree as `remove_tree` does, and yield after each entry."""
    try:
        yield from _remove(path)
    except PermissionError:
        if not remove_as_owner(path):
            raise


def _remove(path: Path) -> Iterator[None]:
    try:
        path.chmod(0o700)
        root = os.open(path, _FOLDER)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(root, fcntl.LOCK_EX)
        names = (f".{secrets.token_hex(8)}" for _ in iter(int, 1))
        yield from _flatten(root, names)
    finally:
        os.close(root)
    with suppress(FileNotFoundError):
        path.rmdir()


def _flatten(root: int, names: Iterator[str]) -> Iterator[None]:
    # Directories are moved up to the root before they are emptied, so that depth costs neither stack nor descriptors.
    pending: list[str] = []
    yield from _empty(root, root, names, pending)
    while pending:
        name = pending.pop()
        folder = os.open(name, _FOLDER, dir_fd=root)
        try:
            yield from _empty(folder, root, names, pending)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=root)


def _empty(folder: int, root: int, names: Iterator[str], moved: list[str]) -> Iterator[None]:
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            with suppress(PermissionError):
                # It may be open to this user though it is another's.
                os.chmod(entry.name, 0o700, dir_fd=folder)
            moved.append(next(names))
            os.rename(entry.name, moved[-1], src_dir_fd=folder, dst_dir_fd=root)
        else:
            os.unlink(entry.name, dir_fd=folder)
        yield
