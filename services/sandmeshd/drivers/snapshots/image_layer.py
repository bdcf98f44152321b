"""A snapshot of a sandbox with an image, as a layer on that image's: see the OCI Image Specification 1.1."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from sandmesh.errors import InvalidArgument

WORKSPACE: Final = "workspace"
_CHANGES: Final = "changes"
_ATTRIBUTE: Final = "SCHILY.xattr."
_OPAQUE: Final = f"{_ATTRIBUTE}user.overlay.opaque"
_WHITEOUT: Final = ".wh."
_PIECE: Final = 1 << 18


class LayerSink(Protocol):
    """Takes the tar of a layer."""

    def write(self, data: bytes, /) -> object:
        """Take a part of it."""
        ...


def write_layer(files: Path, sink: LayerSink) -> bool:
    """Write the layer of a snapshot's tar; return whether its workspace has files, which are in /workspace then.

    Raises:
        InvalidArgument: It has a file that no layer can have.
    """
    place: tarfile.TarInfo | None = None
    has_workspace = False
    with tarfile.open(files, "r|", errorlevel=2) as archive:
        for member in archive:
            made = _converted(member)
            if made is None:
                continue
            if made.name == WORKSPACE and member.name == WORKSPACE:
                # Only for what is in it.
                place = made
                continue
            if member.name.startswith(f"{WORKSPACE}/") and not has_workspace:
                has_workspace = True
                for part in _entry(place) if place else ():
                    sink.write(part)
            for part in _entry(made):
                sink.write(part)
            for part in _content(archive, member) if made.isreg() else ():
                sink.write(part)
    sink.write(bytes(2 * tarfile.BLOCKSIZE))
    return has_workspace


def _converted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a member as a layer has it; None for the root itself."""
    name = _place(member.name)
    if not name:
        return None
    if PurePosixPath(name).name.startswith(_WHITEOUT):
        message = f"the snapshot has the file /{name}: in a layer its name means that another is removed; rename it"
        raise InvalidArgument(message, {"field": "snapshot"})
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.mtime = member.type, member.mode, member.mtime
    made.uid, made.gid, made.size = member.uid, member.gid, member.size
    made.linkname = _place(member.linkname) if member.islnk() else member.linkname
    made.pax_headers = {key: value for key, value in member.pax_headers.items() if key.startswith(_ATTRIBUTE)}
    return made


def _place(name: str) -> str:
    top, _, rest = name.partition("/")
    return name if top == WORKSPACE else rest


def _entry(made: tarfile.TarInfo) -> Iterator[bytes]:
    place = PurePosixPath(made.name)
    if made.ischr():
        yield _packed(tarfile.TarInfo(str(place.parent / f"{_WHITEOUT}{place.name}")))
        return
    attributes = dict(made.pax_headers)
    is_opaque = attributes.pop(_OPAQUE, None) == "y"
    made.pax_headers = attributes
    yield _packed(made)
    if is_opaque:
        yield _packed(tarfile.TarInfo(str(place / ".wh..wh..opq")))


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    file = archive.extractfile(member)
    while file is not None and (data := file.read(_PIECE)):
        yield data
    yield bytes(-member.size % tarfile.BLOCKSIZE)


def _packed(made: tarfile.TarInfo) -> bytes:
    return made.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
