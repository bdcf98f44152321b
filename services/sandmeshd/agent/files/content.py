"""Reading and writing one file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any, Final

from sandmesh.shared.files.atomic_file import AtomicFile
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.entries import facts, version
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.replacement import open_replacement
from sandmeshd.agent.files.requests import Read, Write
from sandmeshd.agent.files.streams import InputReader

_PIECE: Final = 1 << 20


class FileReader:
    """A file that is read: its metadata, then its bytes."""

    def __init__(self, workspace: Workspace, request: Read) -> None:
        self._workspace = workspace
        self._request = request
        self._fd = -1
        self._end = 0

    def open(self) -> dict[str, Any]:
        """Open it and return its metadata.

        Raises:
            OSError: ESTALE where it is not the requested version, and what else the system says.
        """
        request = self._request
        self._fd = self._workspace.open_file(request.path)
        found = os.fstat(self._fd)
        if request.version and version(found) != request.version:
            raise OSError(errno.ESTALE, "it is not the file that it was", request.path)
        end = found.st_size if request.length is None else request.offset + request.length
        self._end = min(end, found.st_size)
        return {**facts(request.path, found), "version": version(found)}

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes; of one that grows meanwhile, those up to the end that it had.

        Raises:
            OSError: ESTALE where it became shorter.
        """
        at = self._request.offset
        os.posix_fadvise(self._fd, at, 0, os.POSIX_FADV_SEQUENTIAL)
        while at < self._end:
            piece = os.pread(self._fd, min(_PIECE, self._end - at), at)
            if not piece:
                raise OSError(errno.ESTALE, "it became shorter while it was read", self._request.path)
            at += len(piece)
            yield piece

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileWriter:
    """A file that is written from a call's input."""

    def __init__(self, workspace: Workspace, request: Write, most: int) -> None:
        self._workspace = workspace
        self._request = request
        self._most = most

    def take(self, input_reader: InputReader) -> dict[str, Any]:
        """Write the input, and return the metadata of the file.

        Raises:
            CallStopped: The input was not of the declared size, or was interrupted.
            OSError: EFBIG, ENOSPC, EISDIR and what else the system says; nothing is kept.
        """
        request = self._request
        with open_replacement(self._workspace, request.path, make_parents=request.make_parents) as (file, mode):
            self._check_size(file)
            count = self._fill(input_reader, file)
            if not input_reader.whole or (request.size is not None and count != request.size):
                raise CallStopped
            found = file.commit(replace=request.replace, mode=mode if request.mode is None else request.mode)
        return {**facts(request.path, found), "version": version(found)}

    def _check_size(self, file: AtomicFile) -> None:
        """Refuse a size that cannot fit before it is sent."""
        size = self._request.size
        if size is not None:
            self._check(size)
            room = os.fstatvfs(file.fd)
            if room.f_blocks and room.f_bavail * room.f_frsize < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._request.path)

    def _fill(self, input_reader: InputReader, file: AtomicFile) -> int:
        count, piece = 0, b""
        while piece := input_reader.take(piece):
            count += len(piece)
            self._check(count)
            file.write(piece)
        return count

    def _check(self, size: int) -> None:
        if self._most and size > self._most:
            raise OSError(
                errno.EFBIG, f"it has {size:,} bytes or more and {self._most:,} are allowed", self._request.path
            )
