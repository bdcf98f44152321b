"""Changes of files, from inotify(7) by ctypes.

Numbers and layout are those of linux/inotify.h.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import Any, Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.entries import open_child
from sandmeshd.agent.files.requests import Watch
from sandmeshd.agent.files.trees.tree import list_entries

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_OVERFLOW, _IGNORED, _ISDIR = 0x4000, 0x8000, 0x40000000
_WANTED: Final = _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_KINDS: Final = {
    _CREATE: "created",
    _MOVED_TO: "moved_in",
    _MOVED_FROM: "moved_out",
    _DELETE: "deleted",
    _MODIFY: "modified",
    _ATTRIB: "attributes",
}
_EVENT: Final = struct.Struct("iIII")
_BUFFER: Final = 64 << 10
_MOST_DIRECTORIES: Final = 10_000
_libc = ctypes.CDLL(None, use_errno=True)


class PathWatcher:
    """Watches a path. Names are below it; those of the watched path itself are empty."""

    def __init__(self, workspace: Workspace, request: Watch) -> None:
        """Watch from now on.

        Raises:
            OSError: The path is not there, or there are too many watches.
        """
        self._workspace = workspace
        self._request = request
        self._fd = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._names: dict[int, str] = {}
        self.gone = False
        """Whether the watched path was removed: nothing more is reported."""
        try:
            self._add(workspace.open(request.path, os.O_RDONLY | os.O_NONBLOCK), "")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop watching."""
        os.close(self._fd)

    async def changes(self) -> list[dict[str, Any]]:
        """Wait for changes and return them in order."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self._fd, lambda: None if readable.done() else readable.set_result(None))
        try:
            await readable
        finally:
            loop.remove_reader(self._fd)
        try:
            data = os.read(self._fd, _BUFFER)
        except BlockingIOError:
            return []
        return [change for event in _events(data) for change in self._changes_of(*event)]

    def _changes_of(self, number: int, mask: int, name: str) -> Iterator[dict[str, Any]]:
        if mask & _OVERFLOW:
            yield {"kind": "overflow", "path": "", "directory": True}
            return
        base = self._names.get(number)
        if base is None:
            return
        if mask & (_DELETE_SELF | _MOVE_SELF | _IGNORED):
            yield from self._ended(number, base)
            return
        path = f"{base}/{name}" if base and name else base or name
        kind = next((word for bit, word in _KINDS.items() if mask & bit), None)
        if kind is not None:
            yield {"kind": kind, "path": path, "directory": bool(mask & _ISDIR)}
        if self._request.recursive and mask & _ISDIR and mask & (_CREATE | _MOVED_TO):
            yield from self._enter(path)

    def _ended(self, number: int, base: str) -> Iterator[dict[str, Any]]:
        del self._names[number]
        _libc.inotify_rm_watch(self._fd, number)
        if not base:
            self.gone = True
            yield {"kind": "gone", "path": "", "directory": False}

    def _enter(self, path: str) -> Iterator[dict[str, Any]]:
        """Watch a new directory; what was created in it before the watch began is reported too."""
        try:
            fd = self._workspace.open_directory(f"{self._request.path}/{path}")
        except (OSError, ToolFailure):
            # It went as quickly as it came, or a link took its place.
            return
        for found, directory in self._add(fd, path):
            yield {"kind": "created", "path": found, "directory": directory}

    def _add(self, fd: int, path: str) -> list[tuple[str, bool]]:
        """Watch what a descriptor refers to, with `recursive` all directories below, and return what exists already.

        The descriptor is closed: while it is open the kernel does not report the removal of its directory.
        """
        try:
            if len(self._names) >= _MOST_DIRECTORIES:
                raise OSError(errno.ENOSPC, f"more than {_MOST_DIRECTORIES} directories cannot be watched", path)
            number = _checked(_libc.inotify_add_watch(self._fd, f"/proc/self/fd/{fd}".encode(), _WANTED))
            self._names[number] = path
            return self._add_below(fd, path) if self._request.recursive else []
        finally:
            os.close(fd)

    def _add_below(self, fd: int, path: str) -> list[tuple[str, bool]]:
        try:
            entries = list_entries(fd, _MOST_DIRECTORIES * 10)
        except NotADirectoryError:
            return []
        found: list[tuple[str, bool]] = []
        for entry in entries:
            name = f"{path}/{entry.name}" if path else entry.name
            child = open_child(fd, entry)
            found.append((name, child is not None))
            if child is not None:
                found += self._add(child, name)
        return found


def _events(data: bytes) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at < len(data):
        number, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        yield number, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length


def _checked(status: int) -> int:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return status
