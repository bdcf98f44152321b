"""The agent's part of the egress proxy: it passes bytes between programs inside and the driver, and decides nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Protocol, cast

from sandmesh.api.agent.v1 import agent_pb2 as pb

WINDOW_BYTES: Final = 256 << 10
"""How much of a connection each side may have sent that the other has not dealt with."""

MOST_CONNECTIONS: Final = 256
_BACKLOG: Final = 128
_WAIT_SECONDS: Final = 15.0
"""How long a program waits for the driver's link: it is not there at birth, and while a driver is started again."""
_LINGER_SECONDS: Final = 5.0


class Carrier(Protocol):
    """The link to the driver."""

    def write(self, frame: bytes, /) -> None:
        """Send a frame."""
        ...


class Egress:
    """The connections of all programs inside, and the link that carries them."""

    def __init__(self) -> None:
        self._link: Carrier | None = None
        self._waiting: set[_Connection] = set()
        self._carried: dict[int, _Connection] = {}
        self._last = 0

    async def listen(self, port: int) -> asyncio.Server:
        """Take connections at a port of the sandbox's own loopback.

        Raises:
            OSError: The port cannot be had.
        """
        loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.setblocking(False)
            return await loop.create_server(lambda: _Connection(self), sock=listener, backlog=_BACKLOG)
        except OSError:
            listener.close()
            raise

    def attach(self, link: Carrier) -> None:
        """Let a link carry from now on; what another carried is given up."""
        self.detach(self._link)
        self._link = link
        for connection in list(self._waiting):
            self._begin(connection)

    def detach(self, link: Carrier | None) -> None:
        """Give up what a link carries, where it is the one that does."""
        if link is not None and link is self._link:
            self._link = None
            carried, self._carried = self._carried, {}
            for connection in carried.values():
                connection.abort()

    def take(self, link: Carrier, frame: pb.EgressFrame) -> None:
        """Act on a frame of the driver's."""
        connection = self._carried.get(frame.stream) if link is self._link else None
        if connection is not None:
            connection.take(frame)

    # What connections call.

    def enter(self, connection: _Connection) -> None:
        """Take a new connection in, to be carried now or when there is a link."""
        if len(self._carried) + len(self._waiting) >= MOST_CONNECTIONS:
            connection.abort()
            return
        self._waiting.add(connection)
        if self._link is not None:
            self._begin(connection)

    def leave(self, connection: _Connection) -> None:
        """Forget a connection."""
        self._waiting.discard(connection)
        if self._carried.pop(connection.number, None) is not None:
            self.send(pb.EgressFrame(stream=connection.number, reset=pb.EgressReset()))

    def forget(self, number: int) -> None:
        """Forget a connection that the driver is done with."""
        self._carried.pop(number, None)

    def send(self, frame: pb.EgressFrame) -> None:
        """Send a frame to the driver."""
        if self._link is not None:
            self._link.write(pb.FromAgent(egress=frame).SerializeToString())

    def _begin(self, connection: _Connection) -> None:
        self._waiting.discard(connection)
        self._last += 1
        self._carried[self._last] = connection
        connection.begin(self._last)


class _Connection(asyncio.Protocol):
    """One program's connection to the proxy's port."""

    def __init__(self, egress: Egress) -> None:
        self.number = 0
        self._egress = egress
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._held = b""
        self._credit = WINDOW_BYTES
        self._dealt = 0
        self._slow = False
        self._ended = False
        self._told = False
        self._finished = False
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait to be carried, unread."""
        self._transport = cast("asyncio.Transport", transport)
        # Before Python 3.12 a pause in this very call is undone by what asyncio does right after it.
        self._loop.call_soon(self._enter)

    def _enter(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
            self._timer = self._loop.call_later(_WAIT_SECONDS, self.abort)
            self._egress.enter(self)

    def begin(self, number: int) -> None:
        """Be carried from now on, under a number."""
        self.number = number
        self._cancel_timer()
        self._send(opened=pb.EgressOpened())
        self._pass_on()

    def data_received(self, data: bytes) -> None:
        """Pass on what there is credit for; read no more until there is some again."""
        if not self._over:
            self._held += data
            self._pass_on()

    def eof_received(self) -> bool:
        """Pass the end on; what comes back is still taken."""
        self._ended = True
        self._pass_on()
        return not self._over

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the driver."""
        self._transport = None
        self._cancel_timer()
        self._egress.leave(self)

    def pause_writing(self) -> None:
        """Give no credit: the program does not read."""
        self._slow = True

    def resume_writing(self) -> None:
        """Give the credit that was kept back."""
        self._slow = False
        self._give_credit()

    def take(self, frame: pb.EgressFrame) -> None:
        """Act on a frame."""
        step = frame.WhichOneof("step")
        if step == "credit":
            self._credit += frame.credit
            self._pass_on()
        elif step == "reset":
            self._be_over()
        elif self._transport is None or self._finished:
            return
        elif step == "data":
            self._transport.write(frame.data)
            self._dealt += len(frame.data)
            self._give_credit()
        elif step == "ended":
            self._finished = True
            self._transport.write_eof()

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _pass_on(self) -> None:
        # Some loops read what was sent with the connection before it can be paused.
        if not self.number:
            return
        part, self._held = self._held[: self._credit], self._held[self._credit :]
        if part:
            self._credit -= len(part)
            self._send(data=part)
        if self._transport is None:
            return
        if self._held:
            self._transport.pause_reading()
        elif self._ended:
            self._tell_end()
        else:
            self._transport.resume_reading()

    def _tell_end(self) -> None:
        if not self._told:
            self._told = True
            self._send(ended=pb.EgressEnded())

    def _give_credit(self) -> None:
        if self._dealt >= WINDOW_BYTES // 4 and not self._slow:
            self._send(credit=self._dealt)
            self._dealt = 0

    def _be_over(self) -> None:
        self._over = True
        self._egress.forget(self.number)
        if not self._finished or self._transport is None:
            self.abort()
            return
        # Closing at once with unread bytes would take the answer away from the program before it was read.
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
