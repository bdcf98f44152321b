"""Messages on a byte stream, each preceded by its length in four bytes, most significant first."""

from __future__ import annotations

import struct
from collections.abc import Iterator

LARGEST = 8 * 1024 * 1024
"""The most bytes of one message."""

_LENGTH = struct.Struct("!I")


class FrameTooLarge(ValueError):
    """A peer announced a message that is larger than any."""


class Cutter:
    """Cuts what arrives into whole messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Give the messages that are whole by now.

        Raises:
            FrameTooLarge: A message would be larger than any.
        """
        buffer = self._buffer
        if not buffer and len(data) >= 4 and len(data) == _LENGTH.unpack_from(data)[0] + 4:
            yield data[4:]
            return
        buffer += data
        start = 0
        while len(buffer) - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > LARGEST:
                raise FrameTooLarge(f"a message of {length} bytes; the most is {LARGEST}")
            end = start + 4 + length
            if len(buffer) < end:
                break
            message = bytes(memoryview(buffer)[start + 4 : end])
            start = end
            yield message
        del buffer[:start]


def frame(message: bytes) -> bytes:
    """Give a message with its length before it."""
    return _LENGTH.pack(len(message)) + message
