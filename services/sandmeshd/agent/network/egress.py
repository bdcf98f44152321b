"""The agent's part of the egress proxy: it forwards bytes between programs and the driver, and decides nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Protocol, cast

from sandmesh.api.agent.v1 import agent_pb2 as pb

WINDOW_BYTES: Final = 256 << 10
"""How many bytes of a connection each side may have sent before the other grants credit."""

MAX_CONNECTIONS: Final = 256
_BACKLOG: Final = 128
_WAIT_SECONDS: Final = 15.0
"""How long a program waits for the driver's link, which does not exist at first and while a driver restarts."""
_LINGER_SECONDS: Final = 5.0


class DriverLink(Protocol):
    """The link to the driver."""

    def write(self, frame: bytes, /) -> None:
        """Send a frame."""
        ...


class Egress:
    """The connections of all programs inside, and the link that carries them."""

    def __init__(self) -> None:
        self._link: DriverLink | None = None
        self._waiting: set[_ProgramConnection] = set()
        self._active: dict[int, _ProgramConnection] = {}
        self._last = 0

    async def listen(self, port: int) -> asyncio.Server:
        """Listen at a port of the sandbox's own loopback.

        Raises:
            OSError: The port is in use.
        """
        loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.setblocking(False)
            return await loop.create_server(lambda: _ProgramConnection(self), sock=listener, backlog=_BACKLOG)
        except OSError:
            listener.close()
            raise

    def attach(self, link: DriverLink) -> None:
        """Carry connections over a link from now on; those over another link are aborted."""
        self.detach(self._link)
        self._link = link
        for connection in list(self._waiting):
            self._begin(connection)

    def detach(self, link: DriverLink | None) -> None:
        """Abort the connections over a link, if it is the one in use."""
        if link is not None and link is self._link:
            self._link = None
            active, self._active = self._active, {}
            for connection in active.values():
                connection.abort()

    def take(self, link: DriverLink, frame: pb.EgressFrame) -> None:
        """Handle a frame of the driver."""
        connection = self._active.get(frame.stream) if link is self._link else None
        if connection is not None:
            connection.take(frame)

    def enter(self, connection: _ProgramConnection) -> None:
        """Add a new connection, which starts now or when there is a link."""
        if len(self._active) + len(self._waiting) >= MAX_CONNECTIONS:
            connection.abort()
            return
        self._waiting.add(connection)
        if self._link is not None:
            self._begin(connection)

    def leave(self, connection: _ProgramConnection) -> None:
        """Remove a connection that ended."""
        self._waiting.discard(connection)
        if self._active.pop(connection.number, None) is not None:
            self.send(pb.EgressFrame(stream=connection.number, reset=pb.EgressReset()))

    def forget(self, number: int) -> None:
        """Remove a connection that the driver closed."""
        self._active.pop(number, None)

    def send(self, frame: pb.EgressFrame) -> None:
        """Send a frame to the driver."""
        if self._link is not None:
            self._link.write(pb.FromAgent(egress=frame).SerializeToString())

    def _begin(self, connection: _ProgramConnection) -> None:
        self._waiting.discard(connection)
        self._last += 1
        self._active[self._last] = connection
        connection.begin(self._last)


class _ReceiveWindow:
    """What a connection may still receive from the driver; `delivered` is what was received since the last credit."""

    def __init__(self) -> None:
        self.delivered = 0
        self.paused = False

    def take_credit(self) -> int:
        """Return the credit to grant now: none while the program does not read, or for little."""
        if self.paused or self.delivered < WINDOW_BYTES // 4:
            return 0
        credit, self.delivered = self.delivered, 0
        return credit


class _ProgramConnection(asyncio.Protocol):
    """One program's connection to the proxy's port."""

    def __init__(self, egress: Egress) -> None:
        self.number = 0
        self._egress = egress
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = b""
        self._credit = WINDOW_BYTES
        self._window = _ReceiveWindow()
        self._ended = False
        self._reported = False
        self._finished = False
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait, unread, for the driver's link."""
        self._transport = cast("asyncio.Transport", transport)
        # Before Python 3.12 a pause in this very call is undone by what asyncio does right after it.
        self._loop.call_soon(self._enter)

    def _enter(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
            self._timer = self._loop.call_later(_WAIT_SECONDS, self.abort)
            self._egress.enter(self)

    def begin(self, number: int) -> None:
        """Open the connection's stream, under a number."""
        self.number = number
        self._cancel_timer()
        self._send(opened=pb.EgressOpened())
        self._forward()

    def data_received(self, data: bytes) -> None:
        """Forward what there is credit for; read no more until there is some again."""
        if not self._closed:
            self._unsent += data
            self._forward()

    def eof_received(self) -> bool:
        """Forward the end; data in the other direction still flows."""
        self._ended = True
        self._forward()
        return not self._closed

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end to the driver."""
        self._transport = None
        self._cancel_timer()
        self._egress.leave(self)

    def pause_writing(self) -> None:
        """Withhold credit: the program does not read."""
        self._window.paused = True

    def resume_writing(self) -> None:
        """Grant the credit that was withheld."""
        self._window.paused = False
        self._grant_credit()

    def take(self, frame: pb.EgressFrame) -> None:
        """Handle a frame."""
        step = frame.WhichOneof("step")
        if step == "credit":
            self._credit += frame.credit
            self._forward()
        elif step == "reset":
            self._close()
        elif self._transport is None or self._finished:
            return
        elif step == "data":
            self._transport.write(frame.data)
            self._window.delivered += len(frame.data)
            self._grant_credit()
        elif step == "ended":
            self._finished = True
            self._transport.write_eof()

    def abort(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _forward(self) -> None:
        # Some loops read what was sent with the connection before it can be paused.
        if not self.number:
            return
        part, self._unsent = self._unsent[: self._credit], self._unsent[self._credit :]
        if part:
            self._credit -= len(part)
            self._send(data=part)
        if self._transport is None:
            return
        if self._unsent:
            self._transport.pause_reading()
        elif self._ended:
            self._report_end()
        else:
            self._transport.resume_reading()

    def _report_end(self) -> None:
        if not self._reported:
            self._reported = True
            self._send(ended=pb.EgressEnded())

    def _grant_credit(self) -> None:
        if credit := self._window.take_credit():
            self._send(credit=credit)

    def _close(self) -> None:
        self._closed = True
        self._egress.forget(self.number)
        if not self._finished or self._transport is None:
            self.abort()
            return
        # Closing immediately with unread bytes would take the answer away from the program before it was read.
        self._transport.resume_reading()
        self._timer = self._loop.call_later(_LINGER_SECONDS, self.abort)
        if self._ended:
            self._transport.close()

    def _send(self, **step: object) -> None:
        self._egress.send(pb.EgressFrame(stream=self.number, **step))  # type: ignore[arg-type]  # one of its fields

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
