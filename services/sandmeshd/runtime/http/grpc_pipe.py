"""Carries the connections of gRPC clients that came to a plain HTTP address to the address that serves gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""How a connection of HTTP/2 begins (RFC 9113, 3.4); no request of HTTP/1 does."""


class GrpcPipe(asyncio.Protocol):
    """A client's connection, whose bytes go to a server and back."""

    def __init__(self, address: str, ended: Callable[[], None]) -> None:
        self._address = address
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()

    def begin(self, first: bytes) -> None:
        """Carry what was read of the client, then all that follows."""
        self._connecting = asyncio.create_task(self._connect(first))

    async def _connect(self, first: bytes) -> None:
        client = self._transport
        host, _, port = self._address.rpartition(":")
        if client is None:
            return
        try:
            made = await asyncio.get_running_loop().create_connection(
                lambda: _Answers(client), host.strip("[]"), int(port)
            )
        except OSError:
            client.abort()
            return
        self._server = made[0]
        self._server.write(first)
        client.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Hand it to the server, and read on when that has taken it."""
        if self._server is not None:
            self._server.write(data)

    def pause_writing(self) -> None:
        """Read no more of the server while the client does not."""
        if self._server is not None and not self._server.is_closing():
            self._server.pause_reading()

    def resume_writing(self) -> None:
        """Read on of the server."""
        if self._server is not None and not self._server.is_closing():
            self._server.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Close the server's end, too."""
        del exc
        if self._connecting is not None:
            self._connecting.cancel()
        if self._server is not None:
            self._server.close()
        self._ended()


class _Answers(asyncio.Protocol):
    """The server's end."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        """Hand it to the client."""
        self._client.write(data)

    def pause_writing(self) -> None:
        """Read no more of the client while the server does not."""
        if not self._client.is_closing():
            self._client.pause_reading()

    def resume_writing(self) -> None:
        """Read on of the client."""
        if not self._client.is_closing():
            self._client.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Close the client's end, too."""
        del exc
        self._client.close()
