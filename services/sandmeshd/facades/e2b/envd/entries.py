"""Entries of directories as E2B's clients read them."""

from __future__ import annotations

import stat as modes
from datetime import UTC, datetime
from typing import Any, Final

from sandmesh import SandboxAsync
from sandmesh.files import FileInfo
from sandmeshd.facades.e2b.envd import disk
from sandmeshd.facades.e2b.envd.paths import outside

_TYPES: Final = {"file": "FILE_TYPE_FILE", "directory": "FILE_TYPE_DIRECTORY", "symlink": "FILE_TYPE_SYMLINK"}
_BITS: Final = {"file": modes.S_IFREG, "directory": modes.S_IFDIR, "symlink": modes.S_IFLNK}
_OWNER: Final = "user"


async def read_entry(box: SandboxAsync, path: str) -> dict[str, Any]:
    """Return the entry of a path.

    Raises:
        OSError: There is none.
    """
    return await entry_of(box, path, await disk.stat(box, path, follow=False))


async def entry_of(box: SandboxAsync, path: str, info: FileInfo) -> dict[str, Any]:
    """Return an entry that is known; of a link with the type of what it leads to."""
    kind = info.type
    if kind == "symlink":
        try:
            kind = (await disk.stat(box, path, follow=True)).type
        except OSError:
            # It leads nowhere, or out of what is shown.
            kind = "symlink"
    moment = datetime.fromtimestamp(info.mtime_ns / 1e9, UTC).isoformat().replace("+00:00", "Z")
    entry: dict[str, Any] = {
        "name": path.rstrip("/").rpartition("/")[2],
        "type": _TYPES.get(kind, "FILE_TYPE_UNSPECIFIED"),
        "path": outside(path),
        "size": str(info.size),
        "mode": info.mode,
        "permissions": modes.filemode(_BITS.get(info.type, 0) | info.mode),
        "owner": _OWNER,
        "group": _OWNER,
        "modifiedTime": moment,
        "isSymlink": info.type == "symlink",
    }
    if info.target is not None:
        entry["symlinkTarget"] = outside(info.target)
    return entry
