"""Space on the disk of the mesh's own store: without it the server ends at its next write."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

NEEDED_BYTES = 1 << 20
"""With less the server is not started: it would end, and be started again, at each write."""
LITTLE_BYTES = 64 << 20
LITTLE_PART = 0.05


@dataclass(frozen=True)
class DiskSpace:
    """The space on the disk of a directory that this process may use."""

    directory: Path

    @property
    def fix(self) -> str:
        """What to do when the disk is full."""
        return f"free space on the disk of {self.directory}: the store goes on by itself"

    def shortage(self) -> str:
        """Return why the server cannot run, or an empty string where there is enough space."""
        free, whole = self._measure()
        if free >= NEEDED_BYTES:
            return ""
        return f"the disk of {self.directory} is full: {free >> 10} KiB of {whole >> 20} MiB are left"

    def warning(self) -> str:
        """Return that the store may soon be unable to write, or an empty string where there is enough space."""
        free, whole = self._measure()
        if free >= min(LITTLE_BYTES, max(NEEDED_BYTES, whole * LITTLE_PART)):
            return ""
        return f"the disk of {self.directory} is nearly full: {free >> 10} KiB of {whole >> 20} MiB are left"

    def _measure(self) -> tuple[int, int]:
        try:
            seen = os.statvfs(self.directory)
        except OSError:
            # Whatever is wrong with the directory, the server reports it better.
            return LITTLE_BYTES, LITTLE_BYTES
        # The blocks that a file system reserves are only for root.
        blocks = seen.f_bavail if os.geteuid() else seen.f_bfree
        return blocks * seen.f_frsize, seen.f_blocks * seen.f_frsize
