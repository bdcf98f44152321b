"""Length-prefixed frames on a byte stream: a message's length in four bytes, most significant first, then the message.

Kernels import this module under a template's own interpreter, so it needs nothing but the standard library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import StreamReader

LINK_PROTOCOL = 1
"""The version of what a mesh and an agent send each other over a link, which agent.proto specifies."""
MAX_LINK_MESSAGE = 2 << 20
"""The most bytes of a message on a link between a mesh and an agent."""
SOCKET_PROTOCOL = 1
"""The version of what a client and a gateway send each other over a local socket, which call.proto specifies."""
MAX_SOCKET_MESSAGE = 8 << 20
"""The most bytes of a message on a gateway's local socket."""
MAX_MESSAGE = 0xFFFFFFFF
"""The most bytes that a length can announce: the limit for a peer that is trusted."""

_LENGTH = struct.Struct("!I")
_PREFIX = _LENGTH.size

prefix = _LENGTH.pack
"""Return what precedes a message of so many bytes."""


class FrameTooLarge(ValueError):
    """A peer announced a message over the limit, or sent none; `received` is what came from its beginning on."""

    def __init__(self, message: str, received: bytes = b"") -> None:
        super().__init__(message)
        self.received = received


class FrameBuffer:
    """What has arrived of a stream of frames and is not a whole message yet."""

    def __init__(self, limit: int) -> None:
        """Create an empty buffer for messages of at most `limit` bytes."""
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes and yield each message that they complete.

        Raises:
            FrameTooLarge: A message is over the limit.
        """
        start, size = 0, len(data)
        if self._buffer:
            start = self._fill(data)
            if start > size:
                return
            message = bytes(memoryview(self._buffer)[_PREFIX:])
            self._buffer.clear()
            yield message
        # Cut from `data` itself: only a message that comes in several parts is copied into the buffer.
        while size - start >= _PREFIX:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > self._limit:
                raise _too_large(length, self._limit, data[start:])
            end = start + _PREFIX + length
            if end > size:
                break
            yield data[start + _PREFIX : end]
            start = end
        self._buffer += data[start:]

    def _fill(self, data: bytes) -> int:
        """Move what the message in the buffer lacks; return where that ends, past `data` while some is missing."""
        buffer, start = self._buffer, 0
        if len(buffer) < _PREFIX:
            start = _PREFIX - len(buffer)
            buffer += data[:start]
            if len(buffer) < _PREFIX:
                return len(data) + 1
        (length,) = _LENGTH.unpack_from(buffer, 0)
        if length > self._limit:
            raise _too_large(length, self._limit, bytes(buffer) + data[start:])
        end: int = start + _PREFIX + length - len(buffer)
        buffer += data[start:end]
        return end


def _too_large(length: int, limit: int, received: bytes = b"") -> FrameTooLarge:
    return FrameTooLarge(f"a message of {length} bytes is over the limit of {limit}", received)


def pack(message: bytes) -> bytes:
    """Return the frame of a message."""
    return prefix(len(message)) + message


def varint(number: int) -> bytes:
    """Return a length as protobuf writes it: seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


async def read(reader: StreamReader, limit: int) -> bytes:
    """Read the next message.

    Raises:
        FrameTooLarge: It is over the limit.
        IncompleteReadError: The stream ended.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_PREFIX))
    if length > limit:
        raise _too_large(length, limit)
    return await reader.readexactly(length)
