"""Points a dynamically linked program at its own loader and libraries, as patchelf(1) does.

The kernel reads the loader's path from the file, at the offset that the program header PT_INTERP has; the loader reads
the paths of libraries from memory, by the dynamic section. So the loader's new path is appended to the file, and the
libraries' path takes the place of the loader's old one. See elf(5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_HEADER: Final = struct.Struct("<16s2HI3QI6H")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_ENTRY: Final = struct.Struct("<qQ")
_MAGIC: Final = b"\x7fELF\x02\x01"
"""A 64-bit little-endian file."""
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_STRTAB, _DT_RPATH, _DT_DEBUG, _DT_RUNPATH = 0, 5, 15, 21, 29


class NotPortable(Exception):
    """A program cannot be pointed elsewhere; the text says why."""


@dataclass(frozen=True)
class _Segment:
    header: int
    """Where its program header is in the file."""
    kind: int
    offset: int
    address: int
    size: int


def loader_of(data: bytes) -> str:
    """Return the path of a program's loader.

    Raises:
        NotPortable: It is not a 64-bit little-endian program with one.
    """
    found = _only(data, _PT_INTERP)
    return data[found.offset : found.offset + found.size].rstrip(b"\0").decode()


def redirected(data: bytes, loader: str, libraries: str) -> bytes:
    """Return a program that starts by another loader and looks for libraries in one directory first.

    Raises:
        NotPortable: It has no loader, or no room for the directory's path.
    """
    found = _only(data, _PT_INTERP)
    path = libraries.encode() + b"\0"
    if len(path) > found.size:
        raise NotPortable(f"there is room for a path of {found.size - 1} characters, and {libraries} is longer")
    image = bytearray(data)
    image[found.offset : found.offset + found.size] = path.ljust(found.size, b"\0")
    kind, flags, _, address, physical, _, _, align = _SEGMENT.unpack_from(image, found.header)
    name = loader.encode() + b"\0"
    _SEGMENT.pack_into(image, found.header, kind, flags, len(image), address, physical, len(name), len(name), align)
    image += name
    _add_search_path(image, _only(data, _PT_DYNAMIC), found.address)
    return bytes(image)


def _add_search_path(image: bytearray, dynamic: _Segment, address: int) -> None:
    """Make the string at an address the search path of libraries, for those that they need, too."""
    entries = [(at, *_ENTRY.unpack_from(image, at)) for at in _entries(dynamic)]
    strings = next((value for _, tag, value in entries if tag == _DT_STRTAB), None)
    free = [at for at, tag, _ in entries if tag in (_DT_RPATH, _DT_RUNPATH)]
    ends = [at for at, tag, _ in entries if tag == _DT_NULL]
    # The last one ends the list; only debuggers read DT_DEBUG.
    free += ends[:-1] or [at for at, tag, _ in entries if tag == _DT_DEBUG]
    if strings is None or not free:
        raise NotPortable("its dynamic section has no room for the path of its libraries")
    _ENTRY.pack_into(image, free[0], _DT_RPATH, (address - strings) % (1 << 64))


def _entries(dynamic: _Segment) -> range:
    return range(dynamic.offset, dynamic.offset + dynamic.size - _ENTRY.size + 1, _ENTRY.size)


def _only(data: bytes, kind: int) -> _Segment:
    found = next((segment for segment in _segments(data) if segment.kind == kind), None)
    if found is None:
        raise NotPortable("it is not dynamically linked")
    return found


def _segments(data: bytes) -> Iterator[_Segment]:
    if not data.startswith(_MAGIC):
        raise NotPortable("it is not a 64-bit little-endian program")
    fields = _HEADER.unpack_from(data)
    first, size, count = fields[5], fields[9], fields[10]
    for number in range(count):
        at = first + number * size
        kind, _, offset, address, _, stored, _, _ = _SEGMENT.unpack_from(data, at)
        yield _Segment(at, kind, offset, address, stored)
