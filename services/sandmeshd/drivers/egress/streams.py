"""One connection out of a sandbox, as frames of the link to its agent: bytes both ways, each with a credit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sandmesh.api.agent.v1.agent_pb2 import EgressEnded, EgressFrame, EgressReset

WINDOW_BYTES = 256 * 1024
PIECE_BYTES = 128 * 1024

Send = Callable[[EgressFrame], Awaitable[None]]


class Overrun(Exception):
    """The agent sent more than it had credit for."""


class ProxyStream:
    """A connection as the proxy sees it."""

    def __init__(self, number: int, send: Send) -> None:
        self._number = number
        self._send = send
        self.bytes_read = 0
        """What the proxy has read: bytes from the program."""
        self.bytes_written = 0
        """What the proxy has written: bytes to the program."""
        self._received: deque[bytes] = deque()
        self._unread = 0
        self._dealt = 0
        self._ended = False
        self._lost = False
        self._credit = WINDOW_BYTES
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    # What the link calls.

    def take(self, frame: EgressFrame) -> None:
        """Take what the agent sent.

        Raises:
            Overrun: It is more than the agent may send.
        """
        step = frame.WhichOneof("step")
        if step == "data":
            self._take_data(frame.data)
        elif step == "credit":
            self._credit = min(self._credit + frame.credit, WINDOW_BYTES)
            self._room.set()
        elif step == "ended":
            self._ended = True
            self._news.set()
        elif step == "reset":
            self.lose()

    def _take_data(self, data: bytes) -> None:
        self._unread += len(data)
        if self._unread + self._dealt > WINDOW_BYTES:
            raise Overrun(f"egress stream {self._number} holds {self._unread} bytes that were not asked for")
        if data and not self._ended:
            self._received.append(data)
            self._news.set()

    def lose(self) -> None:
        """Note that the other end is gone."""
        self._lost = True
        self._news.set()
        self._room.set()

    # What the proxy calls.

    async def peek(self) -> bytes:
        """Return the next bytes and leave them to be read, none at the end.

        Raises:
            ConnectionResetError: The other end is gone.
        """
        while not self._received:
            self._check()
            if self._ended:
                return b""
            self._news.clear()
            await self._news.wait()
        return self._received[0]

    async def read(self) -> bytes:
        """Return the next bytes, none at the end.

        Raises:
            ConnectionResetError: The other end is gone.
        """
        if not await self.peek():
            return b""
        data = self._received.popleft()
        self._unread -= len(data)
        self.bytes_read += len(data)
        self._dealt += len(data)
        if self._dealt >= WINDOW_BYTES // 4:
            dealt, self._dealt = self._dealt, 0
            await self._send(EgressFrame(stream=self._number, credit=dealt))
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; return when the window has room for them.

        Raises:
            ConnectionResetError: The other end is gone.
        """
        view = memoryview(data)
        while view:
            self._check()
            if not self._credit:
                self._room.clear()
                await self._room.wait()
                continue
            size = min(len(view), self._credit, PIECE_BYTES)
            self._credit -= size
            await self._send(EgressFrame(stream=self._number, data=bytes(view[:size])))
            self.bytes_written += size
            view = view[size:]

    async def end(self) -> None:
        """Send the end of the stream."""
        if not self._lost:
            await self._send(EgressFrame(stream=self._number, ended=EgressEnded()))

    async def reset(self) -> None:
        """Reset the connection."""
        if not self._lost:
            self._lost = True
            with suppress(OSError):
                await self._send(EgressFrame(stream=self._number, reset=EgressReset()))

    def _check(self) -> None:
        if self._lost:
            raise ConnectionResetError("the program inside is gone")
