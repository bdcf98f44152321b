"""Directories that a layer has without an entry for them: what lower layers say of them holds on.

Some builders list only files. overlayfs takes the mode and owner of a directory from the highest layer that has it, so
that /tmp would become root's with such a layer. A layer of only directories, on top of all, says what they are.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sandmesh.errors import InvalidArgument
from sandmeshd.images.layers.layers import Layer
from sandmeshd.images.layers.unpack import require_owners


def correcting_layer(layers: Sequence[Layer]) -> bytes:
    """Return the tar of the layer that corrects directories of others, lowest first; empty where none is wrong.

    Raises:
        InvalidArgument: A layer has files below a link of a lower one.
    """
    owners = require_owners()
    first = owners.start if owners is not None else 0
    entries: list[tarfile.TarInfo] = []
    for path in sorted({path for layer in layers for path in layer.content.implied}):
        status = _explicit(path, layers)
        if status is not None and (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) != (0o755, first, first):
            entries.append(_entry(path, status, first))
    if not entries:
        return b""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for entry in entries:
            archive.addfile(entry)
    return out.getvalue()


def _explicit(path: str, layers: Sequence[Layer]) -> os.stat_result | None:
    """Return what the highest layer that lists a directory says, if those above have it without an entry."""
    for layer in reversed(layers):
        place = layer.directory / path
        parents = [layer.directory / parent for parent in Path(path).parents if parent.parts]
        # A file, a link or a whiteout above it hides lower layers, and must not be followed.
        if any(map(_is_other, parents)):
            return None
        if path not in layer.content.implied:
            with suppress(OSError):
                return _checked(path, place.lstat())
        if any(map(_is_opaque, (place, *parents))):
            return None
    return None


def _checked(path: str, status: os.stat_result) -> os.stat_result | None:
    """Return the status of a directory; None for what hides one."""
    if stat.S_ISLNK(status.st_mode):
        raise InvalidArgument(f"a layer has files below {path!a}, which is a link in a lower one: build it again")
    return status if stat.S_ISDIR(status.st_mode) else None


def _is_other(path: Path) -> bool:
    try:
        return not stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _is_opaque(path: Path) -> bool:
    try:
        return os.getxattr(path, "user.overlay.opaque", follow_symlinks=False) == b"y"
    except OSError:
        return False


def _entry(path: str, status: os.stat_result, first: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type = tarfile.DIRTYPE
    entry.mode = stat.S_IMODE(status.st_mode)
    entry.uid, entry.gid = status.st_uid - first, status.st_gid - first
    entry.mtime = int(status.st_mtime)
    return entry
