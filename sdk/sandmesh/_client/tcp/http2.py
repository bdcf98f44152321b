"""One gRPC stream, the only one of an HTTP/2 connection, as bytes: the part of RFC 9113 that it needs, without sockets.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md says how gRPC uses it.

The library h2 (4.4) would be a further dependency of every client. For one stream it takes 4.3 times the processor time
of this module: 12 for 2.8 microseconds for a message of 200 bytes each way, 22 for 5.0 at 8,000, and 10 ms to import.
The gateway's HTTP listener, which serves any client with any number of streams, uses h2.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import grpc

from sandmesh._client.tcp import hpack
from sandmesh.shared.frames import MAX_SOCKET_MESSAGE

Metadata = tuple[tuple[str, str | bytes], ...]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES: Final = 16 << 10
"""The most bytes of a frame that either side sends: the least that every peer takes."""
MOST_WINDOW: Final = (1 << 31) - 1
_REPLENISH: Final = 1 << 30
_FIRST_WINDOW: Final = 65_535
_HEADER: Final = 9
_PREFIX: Final = struct.Struct("!BI")
"""What precedes a message of gRPC: whether it is compressed, and its length."""
_SETTING: Final = struct.Struct("!HI")
_STREAM: Final = 1

_DATA, _HEADERS, _RESET, _SETTINGS, _PROMISE, _PING, _GOAWAY, _UPDATE, _CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_TABLE_SIZE, _PUSH, _WINDOW, _FRAME_SIZE, _LIST_SIZE = 1, 2, 4, 5, 6

_OF_HTTP: Final[Mapping[str, grpc.StatusCode]] = {
    "400": grpc.StatusCode.INTERNAL,
    "401": grpc.StatusCode.UNAUTHENTICATED,
    "403": grpc.StatusCode.PERMISSION_DENIED,
    "404": grpc.StatusCode.UNIMPLEMENTED,
    "429": grpc.StatusCode.UNAVAILABLE,
    "502": grpc.StatusCode.UNAVAILABLE,
    "503": grpc.StatusCode.UNAVAILABLE,
    "504": grpc.StatusCode.UNAVAILABLE,
}
"""What a status of HTTP stands for that comes without gRPC's own, as gRPC's http-grpc-status-mapping.md says."""
_CODES: Final[Mapping[str, grpc.StatusCode]] = {str(code.value[0]): code for code in grpc.StatusCode}


class Http2Error(ValueError):
    """A peer sent what RFC 9113, or gRPC on top of it, does not allow."""


@dataclass(frozen=True)
class StreamStatus:
    """How the stream ended: gRPC's code and message, and the trailing metadata."""

    code: grpc.StatusCode
    message: str = ""
    metadata: Metadata = ()


def is_plain(fields: Sequence[tuple[str, str]]) -> bool:
    """Return whether header fields have nothing that HTTP/2 has no room for, and fit into one frame."""
    plain = all(value.isascii() and value.isprintable() for _, value in fields)
    return plain and len(hpack.encode(fields)) <= FRAME_BYTES


class Http2Stream:
    """Turns messages into bytes to send, and bytes received into messages."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        """Take the header fields of the request."""
        self.greeted = False
        """Whether the peer has shown that it speaks HTTP/2."""
        self.status: StreamStatus | None = None
        """How the stream ended."""
        self._fields = fields
        self._buffer = b""
        self._block: bytearray | None = None
        self._block_ends = False
        self._messages = _MessageCutter()
        self._sending = _Sending()
        self._answered = False
        self._received = 0
        self._control: list[bytes] = []
        self._handlers: Mapping[int, Callable[[int, int, bytes], None]] = {
            _HEADERS: self._take_headers,
            _RESET: self._take_reset,
            _SETTINGS: self._take_settings,
            _PROMISE: self._take_promise,
            _PING: self._take_ping,
            _GOAWAY: self._take_goaway,
            _UPDATE: self._take_update,
            _CONTINUATION: self._take_continuation,
        }

    def begin(self) -> bytes:
        """Return the first bytes of a connection: the request, and windows that never fill; calls have their own."""
        settings = ((_TABLE_SIZE, 0), (_PUSH, 0), (_WINDOW, MOST_WINDOW), (_LIST_SIZE, hpack.LONGEST))
        return b"".join(
            (
                PREFACE,
                _frame(_SETTINGS, 0, 0, b"".join(_SETTING.pack(*setting) for setting in settings)),
                _update(0, MOST_WINDOW - _FIRST_WINDOW),
                _frame(_HEADERS, _END_HEADERS, _STREAM, hpack.encode(self._fields)),
            )
        )

    @property
    def blocked(self) -> bool:
        """Whether what was sent waits for the peer to make room."""
        return bool(self._sending.waiting)

    def send(self, message: bytes) -> bytes:
        """Return what of a message may leave now."""
        return self._sending.add(_PREFIX.pack(0, len(message)) + message)

    def end(self) -> bytes:
        """Return what announces that no message follows, if it may leave now."""
        return self._sending.end()

    def output(self) -> bytes:
        """Return what has to leave because of what was received."""
        control, self._control = self._control, []
        return b"".join(control) + self._sending.flush()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes and yield each message that they complete.

        Raises:
            Http2Error, HpackError: The peer broke a rule.
        """
        if self._buffer:
            data = self._buffer + data
        start, size = 0, len(data)
        while size - start >= _HEADER and self.status is None:
            length = int.from_bytes(data[start : start + 3])
            if length > FRAME_BYTES:
                raise Http2Error(f"a frame of {length} bytes is too large")
            end = start + _HEADER + length
            if end > size:
                break
            stream = int.from_bytes(data[start + 5 : start + _HEADER]) & MOST_WINDOW
            payload = data[start + _HEADER : end]
            yield from self._take(data[start + 3], data[start + 4], stream, payload)
            start = end
        self._buffer = data[start:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> Iterator[bytes]:
        if not self.greeted and kind != _SETTINGS:
            raise Http2Error("the first frame is not SETTINGS")
        if self._block is not None and (kind != _CONTINUATION or stream != _STREAM):
            raise Http2Error("a block of header fields was interrupted")
        if kind == _DATA:
            yield from self._take_data(flags, stream, payload)
            return
        handle = self._handlers.get(kind)
        if handle is not None:  # others are to be ignored
            handle(flags, stream, payload)

    def _take_data(self, flags: int, stream: int, payload: bytes) -> Iterator[bytes]:
        if stream != _STREAM or not self._answered:
            raise Http2Error("DATA came where none belongs")
        self._received += len(payload)
        if self._received >= _REPLENISH:
            self._control += [_update(0, self._received), _update(_STREAM, self._received)]
            self._received = 0
        yield from self._messages.feed(_unpadded(payload) if flags & _PADDED else payload)
        if flags & _END_STREAM:
            self.status = StreamStatus(grpc.StatusCode.INTERNAL, "the stream ended without a status")

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != _STREAM:
            raise Http2Error("HEADERS came on a stream that was not opened")
        if flags & _PADDED:
            payload = _unpadded(payload)
        if flags & _PRIORITY:
            payload = payload[5:]
        self._block, self._block_ends = bytearray(), bool(flags & _END_STREAM)
        self._take_continuation(flags, stream, payload)

    def _take_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None:
            raise Http2Error("CONTINUATION came without HEADERS")
        self._block += payload
        if len(self._block) > hpack.LONGEST:
            raise Http2Error("the header fields are too long")
        if flags & _END_HEADERS:
            block, self._block = bytes(self._block), None
            self._take_fields(hpack.decode(block))

    def _take_fields(self, fields: hpack.Fields) -> None:
        values = dict(fields)
        if values.get(":status", "").startswith("1"):
            return
        if not self._answered:
            self._answered = True
            refused = _refused(values)
            if refused is not None:
                self.status = refused
                return
        elif not self._block_ends:
            raise Http2Error("header fields came among the messages")
        if self._block_ends:
            self.status = _status(fields)

    def _take_reset(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == _STREAM:
            code = int.from_bytes(payload)
            self.status = StreamStatus(grpc.StatusCode.UNAVAILABLE, f"the mesh reset the stream with code {code}")

    def _take_settings(self, flags: int, stream: int, payload: bytes) -> None:
        self.greeted = True
        if flags & _ACK:
            return
        if stream or len(payload) % _SETTING.size:
            raise Http2Error("SETTINGS are not whole")
        for key, value in _SETTING.iter_unpack(payload):
            if key == _WINDOW:
                self._sending.set_window(value)
        self._control.append(_frame(_SETTINGS, _ACK, 0, b""))

    def _take_promise(self, flags: int, stream: int, payload: bytes) -> None:
        raise Http2Error("PUSH_PROMISE came, which was switched off")

    def _take_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise Http2Error("a PING is not whole")
        if not flags & _ACK:
            self._control.append(_frame(_PING, _ACK, 0, payload))

    def _take_goaway(self, flags: int, stream: int, payload: bytes) -> None:
        # A stream that was accepted goes on; there is no other.
        if int.from_bytes(payload[:4]) & MOST_WINDOW < _STREAM:
            self.status = StreamStatus(grpc.StatusCode.UNAVAILABLE, "the mesh takes no further streams")

    def _take_update(self, flags: int, stream: int, payload: bytes) -> None:
        more = int.from_bytes(payload) & MOST_WINDOW
        if len(payload) != 4 or not more:
            raise Http2Error("a WINDOW_UPDATE is not whole")
        self._sending.widen(stream, more)


class _MessageCutter:
    """Cuts messages out of the data of a stream."""

    def __init__(self) -> None:
        self._partial = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        if not self._partial and len(data) >= _PREFIX.size and _length(data) == len(data) - _PREFIX.size:
            yield data[_PREFIX.size :]
            return
        self._partial += data
        while len(self._partial) >= _PREFIX.size:
            end = _PREFIX.size + _length(self._partial)
            if end > len(self._partial):
                return
            message = bytes(memoryview(self._partial)[_PREFIX.size : end])
            del self._partial[:end]
            yield message


class _Sending:
    """What is sent on the stream, as far as the peer's windows allow."""

    def __init__(self) -> None:
        self.waiting = bytearray()
        self._ends = False
        self._connection = _FIRST_WINDOW
        self._stream = self._initial = _FIRST_WINDOW

    def add(self, data: bytes) -> bytes:
        """Return what of the data may leave now."""
        self.waiting += data
        return self.flush()

    def end(self) -> bytes:
        """End the stream behind what waits."""
        self._ends = True
        return self.flush()

    def flush(self) -> bytes:
        """Return what may leave now."""
        frames: list[bytes] = []
        while self.waiting and (room := min(self._connection, self._stream, FRAME_BYTES)) > 0:
            data = bytes(self.waiting[:room])
            del self.waiting[:room]
            self._connection -= len(data)
            self._stream -= len(data)
            frames.append(_frame(_DATA, 0, _STREAM, data))
        if self._ends and not self.waiting:
            self._ends = False
            frames.append(_frame(_DATA, _END_STREAM, _STREAM, b""))
        return b"".join(frames)

    def widen(self, stream: int, more: int) -> None:
        """Add to one of the windows.

        Raises:
            Http2Error: It is larger than one may be.
        """
        if stream == 0:
            self._connection += more
        elif stream == _STREAM:
            self._stream += more
        if max(self._connection, self._stream) > MOST_WINDOW:
            raise Http2Error("a window is too large")

    def set_window(self, initial: int) -> None:
        """Change what the stream's window began with.

        Raises:
            Http2Error: It is larger than one may be.
        """
        self._stream += initial - self._initial
        self._initial = initial
        self.widen(_STREAM, 0)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!IBI", len(payload) << 8 | kind, flags, stream) + payload


def _update(stream: int, more: int) -> bytes:
    return _frame(_UPDATE, 0, stream, struct.pack("!I", more))


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise Http2Error("a frame has more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


def _length(data: bytes | bytearray) -> int:
    compressed, length = _PREFIX.unpack_from(data)
    if compressed or length > MAX_SOCKET_MESSAGE:
        raise Http2Error("a message is compressed" if compressed else f"a message of {length} bytes is too large")
    return int(length)


def _refused(values: Mapping[str, str]) -> StreamStatus | None:
    """Return the status of a response that is not gRPC's."""
    found = values.get(":status", "")
    if "grpc-status" in values or (found == "200" and values.get("content-type", "").startswith("application/grpc")):
        return None
    code = _OF_HTTP.get(found, grpc.StatusCode.UNKNOWN)
    return StreamStatus(code, f"what answers for the mesh is not gRPC: it says {found or 'nothing'} by HTTP")


def _status(fields: hpack.Fields) -> StreamStatus:
    values = dict(fields)
    code = _CODES.get(values.get("grpc-status", ""), grpc.StatusCode.UNKNOWN)
    metadata = tuple((name, _value(name, value)) for name, value in fields if not name.startswith((":", "grpc-")))
    details = tuple((name, _value(name, value)) for name, value in fields if name.startswith("grpc-status-details"))
    return StreamStatus(code, unquote(values.get("grpc-message", "")), metadata + details)


def _value(name: str, value: str) -> str | bytes:
    if not name.endswith("-bin"):
        return value
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4))
    except binascii.Error:
        raise Http2Error(f"{name} is not base64") from None
