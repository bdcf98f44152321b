"""Connectors of aiohttp that end with a driver, to the last socket."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import TCPConnector

CLOSE_SECONDS = 1.0
"""How long connections may take to close when a driver ends."""


@asynccontextmanager
async def open_connector(tls: ssl.SSLContext, limit: int = 100) -> AsyncGenerator[TCPConnector]:
    """Yield a connector for TLS, whose sockets are closed when the block ends; at most `limit` at a time, 0: unlimited.

    A connection that a connector has released stays open until the server has answered the close.
    """
    sockets = list[socket.socket]()

    def make(address: Any) -> socket.socket:
        sockets[:] = [opened for opened in sockets if opened.fileno() >= 0]
        sockets.append(socket.socket(*address[:3]))
        return sockets[-1]

    connector = TCPConnector(ssl=tls, limit=limit, socket_factory=make)
    try:
        yield connector
    finally:
        await connector.close()
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while any(one.fileno() >= 0 for one in sockets):  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.001)
