"""Output that no subscriber has acknowledged, on disk once it exceeds the window.

The file has no name: no code in the sandbox can open it, and it disappears with the agent, however that ends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_OF_A_CALL: Final = 64 << 20
MOST_OF_ALL: Final = 256 << 20
MOST_PIECES: Final = 32_768
"""Each piece takes some memory, however small it is."""


class Extent(NamedTuple):
    """Where a piece is: positions only grow, and the file is a ring buffer."""

    start: int
    size: int


@dataclass
class Disk:
    """Where calls may spill, and how many more bytes all of them together."""

    directory: str
    left: int = MOST_OF_ALL


class Spill:
    """One call's pieces on disk, first in, first out; the file lives from the first piece to the last."""

    def __init__(self, disk: Disk | None, most: int = MOST_OF_A_CALL) -> None:
        self._disk = disk
        self._most = most
        self._fd = -1
        self._size = 0
        self._written = 0
        self._freed = 0
        self.pieces = 0
        """How many pieces are kept."""
        self._failed = False

    @property
    def used(self) -> int:
        """How many bytes are kept."""
        return self._written - self._freed

    @property
    def room(self) -> int:
        """How many more bytes fit."""
        if self._disk is None or self._failed or self.pieces >= MOST_PIECES:
            return 0
        size = self._size if self._fd >= 0 else min(self._most, self._disk.left)
        return max(0, size - self.used)

    @property
    def half_full(self) -> bool:
        """Whether half of what fits is kept."""
        return self.used > self._size // 2 or self.pieces > MOST_PIECES // 2

    def append(self, piece: bytes) -> Extent | None:
        """Write a piece; return None where it does not fit or the disk is full."""
        if self.room < len(piece) or not self._open():
            return None
        at = self._written % self._size
        try:
            first = os.pwrite(self._fd, piece[: self._size - at], at)
            rest = os.pwrite(self._fd, piece[first:], 0) if first == self._size - at else 0
        except OSError:
            first = rest = 0
        if first + rest < len(piece):
            self._failed = True
            return None
        extent = Extent(self._written, len(piece))
        self._written += len(piece)
        self.pieces += 1
        return extent

    def read(self, extent: Extent) -> bytes:
        """Return a piece."""
        at = extent.start % self._size
        first = os.pread(self._fd, min(extent.size, self._size - at), at)
        return first + os.pread(self._fd, extent.size - len(first), 0)

    def free(self, extent: Extent) -> None:
        """Release the oldest piece."""
        self._freed = extent.start + extent.size
        self.pieces -= 1
        if self.pieces == 0:
            self.close()

    def close(self) -> None:
        """Release all pieces."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self._disk is not None:
                self._disk.left += self._size
        self._written = self._freed = self.pieces = 0
        self._failed = False

    def _open(self) -> bool:
        if self._fd >= 0:
            return True
        if self._disk is None:
            return False
        # Without O_TMPFILE, or on a full or read-only file system, the writer waits for room in memory.
        try:
            self._fd = os.open(self._disk.directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:
            self._failed = True
            return False
        self._size = min(self._most, self._disk.left)
        self._disk.left -= self._size
        return True
