"""A connection of HTTP/2 (RFC 9113), whose streams are answered by a server of HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from sandmeshd.runtime.http.h2_streams import StreamTransport, request_head

STREAMS: Final = 100
"""How many requests of a connection may be under way."""

MOST_RESETS: Final = 500
"""How many requests a client may take back: each was begun for nothing."""

WINDOW: Final = 1 << 20
"""How much of a stream's body may be on its way."""

_SETTINGS: Final = {
    SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS,
    SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
    SettingCodes.MAX_HEADER_LIST_SIZE: 64 << 10,
    SettingCodes.ENABLE_PUSH: 0,
}


_PREFACE: Final = 24
_HEAD: Final = 9
_LARGEST_FRAME: Final = 1 << 14
"""What this side takes: RFC 9113, 4.2."""


class _FrameLengths:
    """Follows the lengths of frames: the library would keep one of 16 MiB until it is whole, and refuse it then."""

    def __init__(self) -> None:
        self._skipped = _PREFACE
        self._head = bytearray()

    def check(self, data: bytes) -> None:
        """Check what has come.

        Raises:
            ProtocolError: A frame is too large.
        """
        view = memoryview(data)
        while view:
            size = min(len(view), self._skipped or _HEAD - len(self._head))
            if self._skipped:
                self._skipped -= size
            else:
                self._head += view[:size]
            view = view[size:]
            if len(self._head) == _HEAD:
                self._skipped = int.from_bytes(self._head[:3], "big")
                self._head.clear()
                if self._skipped > _LARGEST_FRAME:
                    raise ProtocolError(f"a frame of {self._skipped} bytes")


@dataclass
class _Stream:
    """A request under way."""

    number: int
    protocol: web.RequestHandler
    transport: StreamTransport
    chunked: bool
    answered: bool = False
    """Whether the head of its response was sent."""


class Http2Connection(asyncio.Protocol):
    """Reads frames, gives each stream a protocol of the server, and sends what that writes."""

    def __init__(self, make: Callable[[], web.RequestHandler], idle_seconds: float, ended: Callable[[], None]) -> None:
        self._make = make
        self._idle_seconds = idle_seconds
        self._ended = ended
        self._streams: dict[int, _Stream] = {}
        self._frames = _FrameLengths()
        self._resets = 0
        self._writing = True
        self._idle: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the settings of this side."""
        self._transport = cast("asyncio.Transport", transport)
        self._h2.local_settings = Settings(client=False, initial_values=_SETTINGS)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(4 * WINDOW)
        self._flush()
        self._rest()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End what is under way."""
        if self._idle is not None:
            self._idle.cancel()
        for stream in list(self._streams.values()):
            self._drop(stream, exc)
        self._ended()

    def pause_writing(self) -> None:
        """Send no more for now."""
        self._writing = False

    def resume_writing(self) -> None:
        """Send again."""
        self._writing = True
        self._pump_all()

    def eof_received(self) -> bool:
        """Close the connection with its other end."""
        return False

    def data_received(self, data: bytes) -> None:
        """Take frames."""
        try:
            self._frames.check(data)
            for event in self._h2.receive_data(data):
                self._take(event)
        except (ProtocolError, UnicodeDecodeError):
            self._flush()
            self._close()
            return
        self._pump_all()

    def _take(self, event: events.Event) -> None:
        match event:
            case events.RequestReceived():
                self._begin(event)
            case events.DataReceived():
                self._data(event)
            case events.StreamEnded():
                stream = self._streams.get(event.stream_id or 0)
                if stream is not None and stream.chunked:
                    stream.protocol.data_received(b"0\r\n\r\n")
            case events.StreamReset():
                self._reset(event)
            case events.ConnectionTerminated():
                self._close()
            case _:
                pass

    def _begin(self, event: events.RequestReceived) -> None:
        number, transport = event.stream_id or 0, self._transport
        headers = [(str(name), str(value)) for name, value in event.headers or ()]
        try:
            head, chunked = request_head(headers)
        except ValueError:
            self._h2.reset_stream(number, ErrorCodes.PROTOCOL_ERROR)
            return
        if transport is None:
            return
        outer = StreamTransport(
            transport,
            lambda: self._pump(number),
            lambda size: self._acknowledge(number, size),
            bodiless=dict(headers).get(":method") == "HEAD",
        )
        protocol = outer.protocol = self._make()
        self._streams[number] = _Stream(number, protocol, outer, chunked)
        if self._idle is not None:
            self._idle.cancel()
        protocol.connection_made(outer)
        protocol.data_received(head)

    def _data(self, event: events.DataReceived) -> None:
        number, data, size = event.stream_id or 0, event.data or b"", event.flow_controlled_length or 0
        stream = self._streams.get(number)
        if stream is None or stream.transport.closed:
            self._acknowledge(number, size)
            return
        if data:
            framed = b"%x\r\n%b\r\n" % (len(data), data) if stream.chunked else data
            stream.protocol.data_received(framed)
        stream.transport.received(size)

    def _acknowledge(self, number: int, size: int) -> None:
        try:
            self._h2.acknowledge_received_data(size, number)
        except ProtocolError:
            return
        self._flush()

    def _reset(self, event: events.StreamReset) -> None:
        stream = self._streams.get(event.stream_id or 0)
        self._resets += 1
        if stream is not None:
            self._drop(stream, ConnectionResetError("the client took its request back"))
        if self._resets > MOST_RESETS:
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._flush()
            self._close()

    def _pump_all(self) -> None:
        for number in list(self._streams):
            self._pump(number)
        self._flush()

    def _pump(self, number: int) -> None:
        """Send what a stream's protocol has written, as far as its client takes it."""
        stream = self._streams.get(number)
        if stream is None or not self._writing:
            return
        transport = stream.transport
        try:
            self._send(stream)
            if transport.failed:
                self._h2.reset_stream(number, ErrorCodes.INTERNAL_ERROR)
            elif not transport.closed or transport.body:
                return
            elif stream.answered:
                self._h2.end_stream(number)
        except ProtocolError:
            # As of a header that HTTP/2 has not.
            with suppress(ProtocolError):
                self._h2.reset_stream(number, ErrorCodes.INTERNAL_ERROR)
        finally:
            self._flush()
        self._drop(stream, None)

    def _send(self, stream: _Stream) -> None:
        transport, number = stream.transport, stream.number
        if transport.reader.headers is not None and not stream.answered:
            stream.answered = True
            pairs = [[text.encode("utf-8", "surrogateescape") for text in pair] for pair in transport.reader.headers]
            self._h2.send_headers(number, [(name, value) for name, value in pairs])
        while transport.body and stream.answered and not transport.failed:
            size = min(
                len(transport.body), self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size
            )
            if size <= 0:
                return
            self._h2.send_data(number, bytes(transport.body[:size]))
            transport.sent(size)

    def _drop(self, stream: _Stream, error: BaseException | None) -> None:
        if self._streams.pop(stream.number, None) is not None:
            stream.transport.closed = True
            stream.protocol.connection_lost(error)
        if not self._streams:
            self._rest()

    def _rest(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._close)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
