"""Content-defined chunking of tar streams: cut at members, so that unchanged content yields the same pieces again."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Final

LARGEST: Final = 4 << 20
_SMALLEST: Final = 512 << 10
_ALONE: Final = 1 << 20
_BLOCK: Final = 512
_ONE_OF: Final = 4


class _Cutter:
    """Cut a stream at its members; the format is https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html."""

    def __init__(self) -> None:
        self._piece = bytearray()
        self._header = bytearray()
        self._left = 0

    def take(self, data: bytes) -> list[bytes]:
        """Add the next bytes; return the pieces that are complete."""
        done: list[bytes] = []
        view = memoryview(data)
        while view:
            view = self._body(view, done) if self._left else self._head(view, done)
        return done

    def end(self) -> list[bytes]:
        """Return the rest."""
        self._piece += self._header
        return [bytes(self._piece)] if self._piece else []

    def _body(self, view: memoryview, done: list[bytes]) -> memoryview:
        count = min(len(view), self._left, LARGEST - len(self._piece))
        self._piece += view[:count]
        self._left -= count
        if len(self._piece) == LARGEST:
            self._cut(done)
        return view[count:]

    def _head(self, view: memoryview, done: list[bytes]) -> memoryview:
        count = min(len(view), _BLOCK - len(self._header))
        self._header += view[:count]
        if len(self._header) == _BLOCK:
            size = _size(self._header)
            if self._begins_piece(size):
                self._cut(done)
            self._piece += self._header
            self._header.clear()
            self._left = -(-size // _BLOCK) * _BLOCK
            if len(self._piece) == LARGEST:
                self._cut(done)
        return view[count:]

    def _begins_piece(self, size: int) -> bool:
        if size >= _ALONE or len(self._piece) + _BLOCK > LARGEST:
            return True
        return len(self._piece) >= _SMALLEST and zlib.crc32(self._header[:100]) % _ONE_OF == 0

    def _cut(self, done: list[bytes]) -> None:
        if self._piece:
            done.append(bytes(self._piece))
            self._piece.clear()


def _size(header: bytearray) -> int:
    field = header[124:136]
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    digits = bytes(field).split(b"\0", 1)[0].strip()
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else 0


async def cut(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a tar stream as pieces of at most LARGEST bytes; together they are the stream, whatever is in it."""
    cutter = _Cutter()
    async for data in stream:
        for piece in cutter.take(data):
            yield piece
    for piece in cutter.end():
        yield piece
