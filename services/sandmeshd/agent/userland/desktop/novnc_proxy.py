#!/usr/bin/env -S python3 -I
"""`novnc_proxy --vnc HOST:PORT --listen [HOST:]PORT`: noVNC's page, and a WebSocket to a VNC server.

It has the name, the place (/opt/noVNC/utils) and the options of noVNC's own program, without its packages.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[3]))

from sandmesh.shared.websocket import HeadBuffer, ProtocolError, WebSocketStream, accept_key, read_head  # noqa: E402
from sandmeshd.contracts.novnc import modules  # noqa: E402

_PAGES = {"/", "/vnc.html", "/vnc_lite.html", "/index.html"}
_KINDS = {".html": "text/html", ".js": "text/javascript"}


def find(path: str) -> tuple[bytes, str] | None:
    """Return a file and its kind; None where there is none of that path."""
    if path in _PAGES:
        path, body = "/vnc.html", (HERE / "vnc.html").read_bytes()
    else:
        body = modules().get(path.removeprefix("/"), b"")
    return (body, _KINDS[Path(path).suffix]) if body else None


class _VncConnection(asyncio.Protocol):
    """The connection to the VNC server."""

    def __init__(self) -> None:
        self.browser: WebSocketStream | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.browser is not None:
            self.browser.write(data)

    def pause_writing(self) -> None:
        if self.browser is not None:
            self.browser.pause_reading()

    def resume_writing(self) -> None:
        if self.browser is not None:
            self.browser.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.browser is not None:
            self.browser.close()


class _ViewerMessages(asyncio.Protocol):
    """What a browser sends in its messages."""

    def __init__(self, server: asyncio.Transport) -> None:
        self._server = server

    def data_received(self, data: bytes) -> None:
        self._server.write(data)


class BrowserConnection(asyncio.Protocol):
    """A browser's connection: a request, and where that is an upgrade what follows."""

    def __init__(self, host: str, port: int) -> None:
        self._where = (host, port)
        self._head = HeadBuffer()
        self._transport: asyncio.Transport | None = None
        self._stream: WebSocketStream | None = None
        self._server: _VncConnection | None = None
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read the request, or a message."""
        if self._stream is not None:
            self._stream.feed(data)
        elif self._transport is not None:
            try:
                self._read(self._transport, data)
            except ProtocolError:
                self._transport.abort()

    def _read(self, transport: asyncio.Transport, data: bytes) -> None:
        found = self._head.feed(data)
        if found is None:
            return
        line, headers = read_head(found[0])
        if headers.get("upgrade", "").lower() == "websocket":
            transport.pause_reading()
            self._opening = asyncio.ensure_future(self._open(transport, headers, found[1]))
        else:
            _answer(transport, line)

    async def _open(self, transport: asyncio.Transport, headers: Mapping[str, str], rest: bytes) -> None:
        try:
            _, server = await asyncio.get_running_loop().create_connection(_VncConnection, *self._where)
        except OSError:
            transport.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            transport.close()
            return
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {accept_key(headers.get('sec-websocket-key', ''))}",
            *(["Sec-WebSocket-Protocol: binary"] if "binary" in headers.get("sec-websocket-protocol", "") else []),
        ]
        transport.write("\r\n".join([*lines, "", ""]).encode())
        assert server.transport is not None  # noqa: S101 - it is connected
        self._server = server
        self._stream = server.browser = WebSocketStream(transport, _ViewerMessages(server.transport), is_client=False)
        if rest:
            self._stream.feed(rest)
        transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop reading from the VNC server."""
        if self._server is not None and self._server.transport is not None:
            self._server.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading from the VNC server."""
        if self._server is not None and self._server.transport is not None:
            self._server.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection to the VNC server."""
        if self._opening is not None:
            self._opening.cancel()
        if self._server is not None and self._server.transport is not None:
            self._server.transport.close()


def _answer(transport: asyncio.Transport, line: str) -> None:
    method, target, *_ = [*line.split(), "", ""]
    found = find(target.partition("?")[0]) if method in ("GET", "HEAD") else None
    body, kind = found or (b"not found", "text/plain")
    status = "200 OK" if found else "404 Not Found"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    transport.write(head.encode() + (body if method != "HEAD" else b""))
    transport.close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


async def serve(listen: tuple[str, int], vnc: tuple[str, int]) -> None:
    """Serve until this is cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: BrowserConnection(vnc[0] or "localhost", vnc[1]), listen[0] or None, listen[1]
    )
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser("novnc_proxy", description=__doc__)
    parser.add_argument("--vnc", type=_address, default=("localhost", 5900), metavar="HOST:PORT")
    parser.add_argument("--listen", type=_address, default=("", 6080), metavar="[HOST:]PORT")
    parser.add_argument("--web", help="ignored: the pages are this program's own")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(options.listen, options.vnc))


if __name__ == "__main__":
    main()
