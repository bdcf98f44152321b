"""The entries of a tar, read with bounds, since the headers are as untrusted as the image.

`tarfile` reads the headers of extended formats into memory, whatever size they state; here they are at most 1 MiB.
Formats: POSIX.1-2001 (pax), ustar, and GNU's long names.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

_BLOCK: Final = 512
_MOST_EXTENDED: Final = 1 << 20
_ENCODING: Final = ("utf-8", "surrogateescape")
_ATTRIBUTE: Final = b"SCHILY.xattr."


class ImageRefused(Exception):
    """An image breaks a rule; `kind` is "bad", "large", "full" or "failed"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class TarKind(Enum):
    """What an entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARD_LINK = "hard link"
    FIFO = "fifo"
    DEVICE = "device"


_KINDS: Final = {
    tarfile.REGTYPE: TarKind.FILE,
    tarfile.AREGTYPE: TarKind.FILE,
    tarfile.CONTTYPE: TarKind.FILE,
    tarfile.DIRTYPE: TarKind.DIRECTORY,
    tarfile.SYMTYPE: TarKind.SYMLINK,
    tarfile.LNKTYPE: TarKind.HARD_LINK,
    tarfile.FIFOTYPE: TarKind.FIFO,
    tarfile.CHRTYPE: TarKind.DEVICE,
    tarfile.BLKTYPE: TarKind.DEVICE,
}


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return that many bytes, fewer only at the end."""
        ...


@dataclass(frozen=True)
class TarEntry:
    """One entry; a file's content follows in the stream."""

    name: bytes
    kind: TarKind
    size: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime: float = 0.0
    target: bytes = b""
    attributes: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])


def read_entries(stream: Readable) -> Iterator[TarEntry]:
    """Yield a tar's entries; who takes them reads exactly a file's `size` bytes from the stream before the next.

    Raises:
        ImageRefused: It is not a tar, or one with what is not supported here.
    """
    common: dict[bytes, bytes] = {}
    extended: dict[bytes, bytes] = {}
    while (header := _read_header(stream)) is not None:
        match header.type:
            case tarfile.XGLTYPE:
                common |= _read_records(stream, header)
            case tarfile.XHDTYPE | tarfile.SOLARIS_XHDTYPE:
                extended |= _read_records(stream, header)
            case tarfile.GNUTYPE_LONGNAME:
                extended[b"path"] = _read_extended(stream, header).rstrip(b"\0")
            case tarfile.GNUTYPE_LONGLINK:
                extended[b"linkpath"] = _read_extended(stream, header).rstrip(b"\0")
            case _:
                entry = _entry(header, common | extended)
                extended = {}
                yield entry
                _skip(stream, -entry.size % _BLOCK)


def _read_header(stream: Readable) -> tarfile.TarInfo | None:
    """Return the next header, None at the end of the tar."""
    block = stream.read(_BLOCK)
    if not block or block == bytes(_BLOCK):
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, *_ENCODING)
    except (tarfile.HeaderError, ValueError) as error:
        raise ImageRefused("bad", f"it is not a tar: {error}") from None
    if header.size < 0:
        raise ImageRefused("bad", "an entry has a negative size")
    return header


def _read_extended(stream: Readable, header: tarfile.TarInfo) -> bytes:
    if header.size > _MOST_EXTENDED:
        raise ImageRefused(
            "large", f"the header of an entry has {header.size} bytes, at most {_MOST_EXTENDED} are allowed"
        )
    data = stream.read(header.size)
    if len(data) < header.size:
        raise ImageRefused("bad", "it ends within a header")
    _skip(stream, -header.size % _BLOCK)
    return data


def _read_records(stream: Readable, header: tarfile.TarInfo) -> dict[bytes, bytes]:
    """Return the records of a pax header: "LENGTH NAME=VALUE\\n" each."""
    data = _read_extended(stream, header)
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data) and data[at]:
        end = data.find(b" ", at, at + 20)
        number = data[at:end] if end > 0 else b""
        length = int(number) if number.isdigit() else 0
        record = data[end + 1 : at + length]
        name, equals, value = record.partition(b"=")
        if not record.endswith(b"\n") or not equals or at + length > len(data):
            raise ImageRefused("bad", "a pax header is damaged")
        records[name] = value[:-1]
        at += length
    return records


def _entry(header: tarfile.TarInfo, records: Mapping[bytes, bytes]) -> TarEntry:
    kind = _KINDS.get(header.type)
    if kind is None or any(name.startswith(b"GNU.sparse") for name in records):
        raise ImageRefused("bad", f"its entry {header.name!a} has a type that is not supported ({header.type!r})")
    size = _number(records, b"size", header.size) if kind is TarKind.FILE else 0
    if kind is not TarKind.FILE and _number(records, b"size", header.size):
        raise ImageRefused("bad", f"its entry {header.name!a} has content, but is a {kind.value}")
    name = records.get(b"path", header.name.encode(*_ENCODING))
    if kind is TarKind.FILE and name.endswith(b"/"):
        kind = TarKind.DIRECTORY
    return TarEntry(
        name=name,
        kind=kind,
        size=size,
        mode=header.mode & 0o7777,
        uid=_number(records, b"uid", header.uid),
        gid=_number(records, b"gid", header.gid),
        mtime=_time(records, header.mtime),
        target=records.get(b"linkpath", header.linkname.encode(*_ENCODING)),
        attributes={n.removeprefix(_ATTRIBUTE): v for n, v in records.items() if n.startswith(_ATTRIBUTE)},
    )


def _number(records: Mapping[bytes, bytes], name: bytes, default: int) -> int:
    value = records.get(name)
    if value is None:
        return default
    if not value.isdigit() or len(value) > 19:
        raise ImageRefused("bad", f"a pax header has a {name.decode()} that is not a number")
    return int(value)


def _time(records: Mapping[bytes, bytes], default: float) -> float:
    try:
        time = float(records.get(b"mtime", b"") or default)
    except ValueError:
        raise ImageRefused("bad", "a pax header has an mtime that is not a number") from None
    return time if time == time else 0.0  # noqa: PLR0124 - not a number


def _skip(stream: Readable, size: int) -> None:
    while size > 0 and (data := stream.read(min(size, 1 << 20))):
        size -= len(data)
