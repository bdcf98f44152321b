"""Metadata and listings of files, from descriptor to descriptor and never through a link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from sandmeshd.agent.files.arguments import write_line
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.requests import List, Stat
from sandmeshd.agent.files.trees.tree import list_entries

# Each level holds a descriptor open.
DEEPEST: Final = 200
MOST_IN_DIRECTORY: Final = 1_000_000
_LINES: Final = 64 << 10
_MOST_ATTRIBUTES: Final = 8 << 10
"""Bytes of a file's extended attributes that are listed: some file systems keep megabytes a file."""

_USER: Final = "user."
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
    """Return the metadata of an entry."""
    return {
        "path": path,
        "type": _KINDS.get(stat.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "mtime_ns": found.st_mtime_ns,
        "links": found.st_nlink,
    }


def version(found: os.stat_result) -> str:
    """Return a token that differs between a file and what replaces or changes it."""
    return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"


def look_up(workspace: Workspace, request: Stat) -> dict[str, Any]:
    """Return the metadata of a path."""
    if request.follow:
        fd = workspace.open(request.path, os.O_PATH)
        try:
            metadata = facts(request.path, os.fstat(fd))
            return metadata | (
                {"attributes": _attributes(f"/proc/self/fd/{fd}", follow=True)} if request.attributes else {}
            )
        finally:
            os.close(fd)
    if workspace.is_root(request.path):
        return look_up(workspace, Stat(request.path, attributes=request.attributes))
    with workspace.parent(request.path) as (directory, name):
        metadata = facts(request.path, os.stat(name, dir_fd=directory, follow_symlinks=False))
        return _with_details(metadata, directory, name, attributes=request.attributes)


def _with_details(metadata: dict[str, Any], directory: int, name: str, *, attributes: bool) -> dict[str, Any]:
    """Add the target of a link, or the attributes of what is not one."""
    if metadata["type"] == "symlink":
        metadata["target"] = os.readlink(name, dir_fd=directory)
    elif attributes and (found := _attributes(f"/proc/self/fd/{directory}/{name}", follow=False)):
        metadata["attributes"] = found
    return metadata


def _attributes(path: str, *, follow: bool) -> dict[str, str]:
    """Return the extended attributes that programs set, without `user.` before their names; none beyond the bound."""
    found: dict[str, str] = {}
    size = 0
    with suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=follow):
            if not name.startswith(_USER):
                continue
            value = os.getxattr(path, name, follow_symlinks=follow)
            size += len(name) + len(value)
            if size > _MOST_ATTRIBUTES:
                break
            found[name.removeprefix(_USER)] = os.fsdecode(value)
    return found


def listing(workspace: Workspace, request: List) -> Iterator[bytes]:
    """Yield the entries below a directory as lines of JSON, by name, parents first, without following links."""
    if not 1 <= request.depth <= DEEPEST:
        raise OSError(errno.EINVAL, f"depth is 1 to {DEEPEST}")
    lines = bytearray()
    for metadata in _below(workspace.open_directory(request.path), "", request.depth, attributes=request.attributes):
        lines += write_line(metadata)
        if len(lines) >= _LINES:
            yield bytes(lines)
            lines.clear()
    if lines:
        yield bytes(lines)


def _below(fd: int, prefix: str, depth: int, *, attributes: bool) -> Iterator[dict[str, Any]]:
    """Yield the entries of a directory and close it."""
    try:
        for entry in list_entries(fd, MOST_IN_DIRECTORY):
            metadata = _describe(fd, prefix, entry, attributes=attributes)
            if metadata is None:
                continue
            yield metadata
            child = open_child(fd, entry) if depth > 1 else None
            if child is not None:
                yield from _below(child, f"{prefix}{entry.name}/", depth - 1, attributes=attributes)
    finally:
        os.close(fd)


def _describe(fd: int, prefix: str, entry: os.DirEntry[str], *, attributes: bool) -> dict[str, Any] | None:
    try:
        metadata = facts(prefix + entry.name, entry.stat(follow_symlinks=False))
        return _with_details(metadata, fd, entry.name, attributes=attributes)
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
