"""Files of a directory as members of a tar, with owners, modes, links and attributes."""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ATTRIBUTE: Final = "SCHILY.xattr."
"""What the headers of a tar have before the name of an extended attribute."""
OPAQUE: Final = "user.overlay.opaque"
"""The attribute of a directory of overlayfs that hides what lower layers have there."""
_OVERLAY: Final = "user.overlay."
PIECE: Final = 1 << 18


def entries_below(root: Path, without: frozenset[str]) -> Iterator[Path]:
    """Yield a directory and what is below it, each before what is in it."""
    yield root
    pending = [root]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        for path in (folder / name for name in names):
            if str(path.relative_to(root)) in without:
                continue
            yield path
            if path.is_dir() and not path.is_symlink():
                pending.append(path)


def member_of(path: Path, name: str, found: os.stat_result) -> tarfile.TarInfo | None:
    """Return the member of a tar that stands for a file, with its owner and attributes; None for a socket."""
    member = tarfile.TarInfo(name)
    member.uid, member.gid, member.mode = found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)
    member.mtime = found.st_mtime
    kept: dict[str, str] = {}
    for attribute in os.listxattr(path, follow_symlinks=False):
        if attribute == OPAQUE or not attribute.startswith(_OVERLAY):
            value = os.getxattr(path, attribute, follow_symlinks=False)
            kept[ATTRIBUTE + attribute] = value.decode("utf-8", "surrogateescape")
    member.pax_headers = kept
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFREG:
        member.size = found.st_size
    elif kind == stat.S_IFDIR:
        member.type = tarfile.DIRTYPE
    elif kind == stat.S_IFLNK:
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif kind == stat.S_IFIFO:
        member.type = tarfile.FIFOTYPE
    elif kind == stat.S_IFCHR and found.st_rdev == 0:
        member.type = tarfile.CHRTYPE
    else:
        # A socket is nothing without the program that listens there.
        return None
    return member


def content_of(path: Path, size: int) -> Iterator[bytes]:
    """Yield the content of a file as a tar has it, filled up to whole blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        left = size
        while left:
            data = os.read(descriptor, min(left, PIECE))
            if not data:
                raise OSError(errno.EIO, f"{path} became shorter while it was read")
            left -= len(data)
            yield data
    finally:
        os.close(descriptor)
    if size % tarfile.BLOCKSIZE:
        yield bytes(-size % tarfile.BLOCKSIZE)
