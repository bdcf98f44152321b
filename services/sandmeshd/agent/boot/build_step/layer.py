"""What a step has changed of its image, as the tar of a layer.

The form of a layer, with its whiteouts, is that of the OCI Image Specification 1.1.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from sandmeshd.agent.files.trees.tree_entries import ATTRIBUTE, OPAQUE, content_of, entries_below, member_of

_OPAQUE_NAME: Final = ".wh..wh..opq"
_PLAIN: Final = (0o755, 0, 0)


def layer_pieces(changes: str, without: Collection[str]) -> Iterator[bytes]:
    """Yield the tar of a layer, nothing where nothing changed.

    Args:
        changes: overlayfs's upper directory.
        without: Paths, relative to the root, that belong to the step and not to its image, with what is in them.

    Raises:
        OSError: A file cannot be read.
    """
    root, hidden = Path(changes), frozenset(without)
    links: dict[tuple[int, int], str] = {}
    empty = True
    for path in entries_below(root, hidden):
        found = path.lstat()
        member = member_of(path, str(path.relative_to(root)), found)
        if member is not None and not _is_only_place(path, root, found, hidden):
            empty = False
            if member.isreg() and found.st_nlink > 1:
                _link(member, links.setdefault((found.st_dev, found.st_ino), member.name))
            yield from _entries(path, member)
    if not empty:
        yield bytes(2 * tarfile.BLOCKSIZE)


def _link(member: tarfile.TarInfo, first: str) -> None:
    if first != member.name:
        member.type, member.linkname, member.size = tarfile.LNKTYPE, first, 0


def _entries(path: Path, member: tarfile.TarInfo) -> Iterator[bytes]:
    place = PurePosixPath(member.name)
    if member.ischr():
        yield _packed(tarfile.TarInfo(str(place.parent / f".wh.{place.name}")))
        return
    attributes = dict(member.pax_headers)
    is_opaque = attributes.pop(ATTRIBUTE + OPAQUE, None) == "y"
    member.pax_headers = attributes
    yield _packed(member)
    if member.isreg():
        yield from content_of(path, member.size)
    if is_opaque:
        yield _packed(tarfile.TarInfo(str(place / _OPAQUE_NAME)))


def _is_only_place(path: Path, root: Path, found: os.stat_result, hidden: frozenset[str]) -> bool:
    """Return whether a directory is only there since something that is hidden is in it."""
    if not stat.S_ISDIR(found.st_mode) or (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) != _PLAIN:
        return False
    inside = "" if path == root else f"{path.relative_to(root)}/"
    if path != root and not any(name.startswith(inside) for name in hidden):
        return False
    names = [] if path == root else os.listdir(path)
    return all(f"{inside}{name}" in hidden for name in names)


def _packed(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
