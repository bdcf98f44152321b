"""Requests of HTTP at the address where an agent listens: an upgrade to a WebSocket that carries a link.

Clouds and proxies that pass on nothing but HTTP reach an agent by it. A health check is answered, with nothing in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sandmesh.shared.websocket import (
    HEAD_END,
    LINK_SUBPROTOCOL,
    HeadBuffer,
    ProtocolError,
    WebSocketStream,
    accept_key,
    read_head,
)


class HttpRequest(asyncio.Protocol):
    """Takes over a connection on which a request of HTTP begins; `link` gets what its WebSocket carries."""

    def __init__(self, transport: asyncio.Transport, link: asyncio.Protocol) -> None:
        self._transport = transport
        self._link = link
        self._head = HeadBuffer()
        self._stream: WebSocketStream | None = None

    def data_received(self, data: bytes) -> None:
        """Read the request, then messages."""
        if self._stream is not None:
            self._stream.feed(data)
            return
        try:
            message = self._head.feed(data)
        except ProtocolError:
            self._transport.close()
            return
        if message is not None:
            self._respond(message[0])
            if message[1] and self._stream is not None:
                self._stream.feed(message[1])

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss of the connection on to the link."""
        self._link.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pause the link."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Resume the link."""
        self._link.resume_writing()

    def _respond(self, head: bytes) -> None:
        first, headers = _read(head)
        path = first.removeprefix("GET ").partition(" ")[0]
        if "upgrade" not in headers:
            self._refuse("200 OK" if path == "/" else "404 Not Found")
        elif not _is_link(headers):
            self._refuse("400 Bad Request")
        else:
            lines = (
                "HTTP/1.1 101 Switching Protocols",
                "Upgrade: websocket",
                "Connection: Upgrade",
                f"Sec-WebSocket-Accept: {accept_key(headers['sec-websocket-key'])}",
                f"Sec-WebSocket-Protocol: {LINK_SUBPROTOCOL}",
            )
            self._transport.write("\r\n".join(lines).encode() + HEAD_END)
            self._stream = WebSocketStream(self._transport, self._link, is_client=False)
            self._link.connection_made(self._stream)

    def _refuse(self, status: str) -> None:
        self._transport.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close".encode() + HEAD_END)
        self._transport.close()


def _read(head: bytes) -> tuple[str, Mapping[str, str]]:
    try:
        return read_head(head)
    except ProtocolError:
        return "", {}


def _is_link(headers: Mapping[str, str]) -> bool:
    offered = [part.strip() for part in headers.get("sec-websocket-protocol", "").split(",")]
    connection = [part.strip().lower() for part in headers.get("connection", "").split(",")]
    return (
        headers["upgrade"].lower() == "websocket"
        and "upgrade" in connection
        and headers.get("sec-websocket-version") == "13"
        and bool(headers.get("sec-websocket-key"))
        and LINK_SUBPROTOCOL in offered
    )
