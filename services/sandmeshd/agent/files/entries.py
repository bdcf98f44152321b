"""What is known of files, and walks through directories, from descriptor to descriptor and never through a link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Any, Final

from sandmeshd.agent.files.arguments import write_line
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.requests import List, Stat
from sandmeshd.agent.files.tree import list_entries

# Each level holds a descriptor open.
DEEPEST: Final = 200
MOST_IN_DIRECTORY: Final = 1_000_000
_LINES: Final = 64 << 10
_KINDS: Final = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
CHILD: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def facts(path: str, found: os.stat_result) -> dict[str, Any]:
    """Give what is told of an entry."""
    return {
        "path": path,
        "type": _KINDS.get(stat.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "mtime_ns": found.st_mtime_ns,
        "links": found.st_nlink,
    }


def version(found: os.stat_result) -> str:
    """Give what differs between a file and what is in its place after a change."""
    return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"


def look_up(workspace: Workspace, asked: Stat) -> dict[str, Any]:
    """Give the facts of a path."""
    if asked.follow:
        fd = workspace.open(asked.path, os.O_PATH)
        try:
            return facts(asked.path, os.fstat(fd))
        finally:
            os.close(fd)
    if workspace.is_root(asked.path):
        return look_up(workspace, Stat(asked.path))
    with workspace.parent(asked.path) as (directory, name):
        told = facts(asked.path, os.stat(name, dir_fd=directory, follow_symlinks=False))
        return _with_target(told, directory, name)


def _with_target(told: dict[str, Any], directory: int, name: str) -> dict[str, Any]:
    if told["type"] == "symlink":
        told["target"] = os.readlink(name, dir_fd=directory)
    return told


def listing(workspace: Workspace, asked: List) -> Iterator[bytes]:
    """Give the entries below a directory as lines of JSON, by name, parents first; links are not followed."""
    if not 1 <= asked.depth <= DEEPEST:
        raise OSError(errno.EINVAL, f"depth is 1 to {DEEPEST}")
    lines = bytearray()
    for told in _below(workspace.open_directory(asked.path), "", asked.depth):
        lines += write_line(told)
        if len(lines) >= _LINES:
            yield bytes(lines)
            lines.clear()
    if lines:
        yield bytes(lines)


def _below(fd: int, prefix: str, depth: int) -> Iterator[dict[str, Any]]:
    """Give the entries of a directory and close it."""
    try:
        for entry in list_entries(fd, MOST_IN_DIRECTORY):
            told = _told(fd, prefix, entry)
            if told is None:
                continue
            yield told
            child = open_child(fd, entry) if depth > 1 else None
            if child is not None:
                yield from _below(child, f"{prefix}{entry.name}/", depth - 1)
    finally:
        os.close(fd)


def _told(fd: int, prefix: str, entry: os.DirEntry[str]) -> dict[str, Any] | None:
    try:
        told = facts(prefix + entry.name, entry.stat(follow_symlinks=False))
        return _with_target(told, fd, entry.name)
    except FileNotFoundError:
        # It went while the directory was read.
        return None


def open_child(fd: int, entry: os.DirEntry[str]) -> int | None:
    """Open a directory; None for what is none, is gone meanwhile or may not be read."""
    if not entry.is_dir(follow_symlinks=False):
        return None
    try:
        return os.open(entry.name, CHILD, dir_fd=fd)
    except OSError:
        return None
