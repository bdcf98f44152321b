"""Entries of directories as E2B's clients read them."""

from __future__ import annotations

import os
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
_METADATA: Final = "e2b."


async def read_entry(box: SandboxAsync, path: str) -> dict[str, Any]:
    """Return the entry of a path.

    Raises:
        OSError: There is none.
    """
    (entry,) = await entries_of(box, {path: await disk.stat(box, path, follow=False)})
    return entry


async def entries_of(box: SandboxAsync, found: dict[str, FileInfo]) -> list[dict[str, Any]]:
    """Return the entries of paths whose info is known; of links with the path and the type of what they lead to."""
    links = [path for path, info in found.items() if info.type == "symlink"]
    ends = dict(zip(links, await disk.follow_links(box, links), strict=True)) if links else {}
    return [_entry(path, info, ends.get(path)) for path, info in found.items()]


def _entry(path: str, info: FileInfo, end: tuple[str, str] | None) -> dict[str, Any]:
    moment = datetime.fromtimestamp(info.mtime_ns / 1e9, UTC).isoformat().replace("+00:00", "Z")
    entry: dict[str, Any] = {
        "name": path.rstrip("/").rpartition("/")[2],
        "type": _TYPES.get(end[1] if end else info.type, "FILE_TYPE_UNSPECIFIED"),
        "path": outside(path),
        "size": str(info.size),
        "mode": info.mode,
        "permissions": modes.filemode(_BITS.get(info.type, 0) | info.mode),
        "owner": _OWNER,
        "group": _OWNER,
        "modifiedTime": moment,
        "isSymlink": info.type == "symlink",
    }
    if end is not None:
        entry["symlinkTarget"] = outside(end[0])
    if metadata := _metadata(info):
        entry["metadata"] = metadata
    return entry


def _metadata(info: FileInfo) -> dict[str, str]:
    """Return what clients or programs inside noted of a file in its extended attributes `user.e2b.`."""
    marks = {name: value for name, value in info.attributes.items() if name.startswith(_METADATA)}
    return {name.removeprefix(_METADATA): os.fsencode(value).decode(errors="replace") for name, value in marks.items()}
