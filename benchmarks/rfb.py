"""A viewer of a desktop that speaks RFB (RFC 6143) itself and decodes no picture, so that it costs next to nothing."""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp

_ZRLE = 16
_KEY_EVENT, _UPDATE, _CUT_TEXT = 4, 0, 3


class Viewer:
    """A connection to a live view: it requests updates of the screen and says when they came."""

    def __init__(self, session: aiohttp.ClientSession, url: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._session = session
        self._url = url
        self._socket = socket
        self._data = bytearray()
        self.size = (0, 0)

    async def begin(self) -> None:
        """Shake hands, and have what changes sent compressed, with its length before it."""
        await self._take(12)
        await self._socket.send_bytes(b"RFB 003.008\n")
        await self._take((await self._take(1))[0])
        await self._socket.send_bytes(b"\x01")
        await self._take(4)
        await self._socket.send_bytes(b"\x01")
        head = await self._take(24)
        width, height, name = *struct.unpack(">HH", head[:4]), struct.unpack(">I", head[20:])[0]
        self.size = (width, height)
        await self._take(name)
        await self._socket.send_bytes(struct.pack(">BxHi", 2, 1, _ZRLE))

    async def update(self, *, whole: bool = False) -> None:
        """Request an update and wait for it: of all, or of what changes."""
        await self._socket.send_bytes(struct.pack(">BBHHHH", 3, not whole, 0, 0, *self.size))
        while (kind := (await self._take(1))[0]) != _UPDATE:
            if kind == _CUT_TEXT:
                await self._take(struct.unpack(">3xI", await self._take(7))[0])
        (count,) = struct.unpack(">xH", await self._take(3))
        for _ in range(count):
            await self._take(12)
            await self._take(struct.unpack(">I", await self._take(4))[0])

    async def control(self, viewer: str, action: str) -> None:
        """Take the desktop over, or hand it back."""
        async with self._session.post(f"{self._url}control?viewer={viewer}", data=action) as answer:
            answer.raise_for_status()

    async def key_to_pixel(self, key: str) -> float:
        """Press and release a key; return the seconds until something changed on the screen."""
        began = time.perf_counter()
        for down in (1, 0):
            await self._socket.send_bytes(struct.pack(">BBxxI", _KEY_EVENT, down, ord(key)))
        await self.update()
        return time.perf_counter() - began

    async def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            self._data += await self._socket.receive_bytes()
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken


@asynccontextmanager
async def viewing(url: str) -> AsyncGenerator[Viewer]:
    """Watch a desktop at the URL of its live view, in control of it."""
    name = secrets.token_hex(16)
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}websocket?viewer={name}") as socket:
        viewer = Viewer(session, url, socket)
        await viewer.begin()
        await viewer.control(name, "take")
        await viewer.update(whole=True)
        yield viewer
        await viewer.control(name, "hand_back")
