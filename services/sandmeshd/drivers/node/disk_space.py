"""Whether there is room left where the driver keeps sandboxes and their sockets."""

from __future__ import annotations

import os

from sandmeshd.runtime.paths import MeshPaths

LITTLE_BYTES = 64 << 20
LITTLE_PART = 0.05
LITTLE_FILES = 100
_FIX = "free space there, or end sandboxes that keep much"


def lacks_room(paths: MeshPaths) -> list[str]:
    """Return which disks are nearly full: sandboxes may not start, and their writes may fail."""
    found: dict[int | str, str] = {}
    for path in (paths.sandboxes, paths.runtime):
        try:
            seen = os.statvfs(path)
        except OSError as error:
            found[str(path)] = f"{path} cannot be used: {error.strerror}"
            continue
        free, whole = seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize
        if free < min(LITTLE_BYTES, whole * LITTLE_PART):
            found.setdefault(
                seen.f_fsid, f"the disk of {path} is full: {free >> 20} MiB of {whole >> 20} are left; {_FIX}"
            )
        elif seen.f_files and seen.f_favail < LITTLE_FILES:
            found.setdefault(seen.f_fsid, f"the disk of {path} has room for {seen.f_favail} more files; {_FIX}")
    return list(found.values())
