"""Reading and writing one file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any, Final

from sandmesh.shared.atomic_file import AtomicFile
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.entries import facts, version
from sandmeshd.agent.files.failures import Cut
from sandmeshd.agent.files.replacement import open_replacement
from sandmeshd.agent.files.requests import Read, Write
from sandmeshd.agent.files.streams import Inlet

_PIECE: Final = 1 << 20


class Reading:
    """A file that is read: first what is known of it, then its bytes."""

    def __init__(self, workspace: Workspace, asked: Read) -> None:
        self._workspace = workspace
        self._asked = asked
        self._fd = -1
        self._end = 0

    def open(self) -> dict[str, Any]:
        """Open it, and give what is known of it.

        Raises:
            OSError: ESTALE where it is not the file that was asked for, and what else the system says.
        """
        asked = self._asked
        self._fd = self._workspace.open_file(asked.path)
        found = os.fstat(self._fd)
        if asked.version and version(found) != asked.version:
            raise OSError(errno.ESTALE, "it is not the file that it was", asked.path)
        end = found.st_size if asked.length is None else asked.offset + asked.length
        self._end = min(end, found.st_size)
        return {**facts(asked.path, found), "version": version(found)}

    def chunks(self) -> Iterator[bytes]:
        """Give its bytes; of one that grows meanwhile, those up to the end that it had.

        Raises:
            OSError: ESTALE where it became shorter.
        """
        at = self._asked.offset
        os.posix_fadvise(self._fd, at, 0, os.POSIX_FADV_SEQUENTIAL)
        while at < self._end:
            piece = os.pread(self._fd, min(_PIECE, self._end - at), at)
            if not piece:
                raise OSError(errno.ESTALE, "it became shorter while it was read", self._asked.path)
            at += len(piece)
            yield piece

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Writing:
    """A file that comes as a call's input."""

    def __init__(self, workspace: Workspace, asked: Write, most: int) -> None:
        self._workspace = workspace
        self._asked = asked
        self._most = most

    def take(self, inlet: Inlet) -> dict[str, Any]:
        """Write what comes, and give what is known of the file that it became.

        Raises:
            Cut: It was not of the stated size, or the input was cut off.
            OSError: EFBIG, ENOSPC, EISDIR and what else the system says; nothing is kept.
        """
        asked = self._asked
        with open_replacement(self._workspace, asked.path, make_parents=asked.make_parents) as (file, mode):
            self._check_size(file)
            count = self._fill(inlet, file)
            if not inlet.whole or (asked.size is not None and count != asked.size):
                raise Cut
            found = file.commit(replace=asked.replace, mode=mode if asked.mode is None else asked.mode)
        return {**facts(asked.path, found), "version": version(found)}

    def _check_size(self, file: AtomicFile) -> None:
        """Refuse a size that cannot fit before it is sent."""
        size = self._asked.size
        if size is not None:
            self._check(size)
            room = os.fstatvfs(file.fd)
            if room.f_blocks and room.f_bavail * room.f_frsize < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._asked.path)

    def _fill(self, inlet: Inlet, file: AtomicFile) -> int:
        count, piece = 0, b""
        while piece := inlet.take(piece):
            count += len(piece)
            self._check(count)
            file.write(piece)
        return count

    def _check(self, size: int) -> None:
        if self._most and size > self._most:
            raise OSError(
                errno.EFBIG, f"it has {size:,} bytes or more and {self._most:,} are allowed", self._asked.path
            )
