"""The pages that show a sandbox's desktop, browser or phone, their connections, and who has the mouse.

The desktop's has noVNC (https://novnc.com, MPL-2.0): the unmodified npm package @novnc/novnc, with its licences in it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, cast

import aiohttp
from aiohttp import web

from sandmesh.api.port.v1 import port_pb2
from sandmeshd.contracts import novnc
from sandmeshd.contracts.pages import scripts
from sandmeshd.gateway.ports import pages
from sandmeshd.gateway.ports.client import Tunnels
from sandmeshd.gateway.ports.tokens import TokenTarget

VIEWS: Final[Mapping[int, str]] = {
    port_pb2.EXPOSURE_KIND_DESKTOP: "desktop",
    port_pb2.EXPOSURE_KIND_DESKTOP_READONLY: "desktop",
    port_pb2.EXPOSURE_KIND_BROWSER: "browser",
    port_pb2.EXPOSURE_KIND_BROWSER_READONLY: "browser",
    port_pb2.EXPOSURE_KIND_MOBILE: "mobile",
    port_pb2.EXPOSURE_KIND_MOBILE_READONLY: "mobile",
}
"""What each kind shows."""
SHOWN: Final[Mapping[int, str]] = {
    **{kind: "phone" if view == "mobile" else view for kind, view in VIEWS.items()},
    port_pb2.EXPOSURE_KIND_DEVTOOLS: "browser",
}
"""What each kind shows, for a person."""

_READONLY: Final = frozenset(
    {
        port_pb2.EXPOSURE_KIND_DESKTOP_READONLY,
        port_pb2.EXPOSURE_KIND_BROWSER_READONLY,
        port_pb2.EXPOSURE_KIND_MOBILE_READONLY,
    }
)
_FOLDER: Final = Path(__file__).parent / "viewer"
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self' ws: wss:; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_VIEWER: Final = re.compile(r"[0-9a-f]{32}")
_ACTIONS: Final = frozenset({"show", "take", "hand_back"})
_LARGEST_MESSAGE: Final = 4 << 20
_MOST_WAITING: Final = 16
_HEARTBEAT_SECONDS: Final = 30.0


async def carry_view(tunnels: Tunnels, request: web.Request, target: TokenTarget, path: str) -> web.StreamResponse:
    """Answer a request for the page of a view, or carry its WebSocket to what draws it.

    Raises:
        Unreachable: The sandbox is gone, its desktop or browser does not start, or its phone does not answer.
    """
    viewer = request.query.get("viewer", "")
    if path in ("/websocket", "/control") and not _VIEWER.fullmatch(viewer):
        return web.Response(status=400, text="viewer must be 32 hexadecimal digits")
    if path == "/websocket":
        return await _carry_picture(tunnels, request, target, viewer)
    if path == "/control" and request.method == "POST":
        return await _control(tunnels, request, target, viewer)
    page = f"{VIEWS[target.kind]}.html"
    name = path.removeprefix("/") or page
    body = _files().get(name) if request.method in ("GET", "HEAD") else None
    if body is None:
        return pages.ended()
    if name == page:
        # A link that was revoked is not told by its token.
        await tunnels.ask(target, "ports.check", {"exposure_id": target.exposure_id})
    return web.Response(body=body, content_type=_KINDS[Path(name).suffix], charset="utf-8", headers=_HEADERS)


@cache
def _files() -> dict[str, bytes]:
    """Return the files of the pages by their paths below them."""
    found = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _KINDS}
    found |= {f"novnc/{name}": body for name, body in novnc.modules().items()}
    return found | scripts()


async def _control(tunnels: Tunnels, request: web.Request, target: TokenTarget, viewer: str) -> web.Response:
    action = (await request.content.read(32)).decode("ascii", "replace")
    if action not in _ACTIONS:
        return web.Response(status=400, text=f"an action is one of {', '.join(sorted(_ACTIONS))}")
    readonly, shown = target.kind in _READONLY, VIEWS[target.kind]
    if readonly and action != "show":
        return web.Response(status=403, text=f"this link only shows the {shown}")
    state = await tunnels.ask(target, f"{shown}.control", {"viewer": viewer, "action": action})
    return web.json_response({**state, "readonly": readonly}, headers={"Cache-Control": "no-store"})


class _Picture(asyncio.Protocol):
    """What the X server or the browser sends, until it is passed on, and whether it takes more."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.waiting.put_nowait(data)
        if self._transport is not None and self.waiting.qsize() >= _MOST_WAITING:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.put_nowait(b"")
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def to_viewer(self, viewer: web.WebSocketResponse) -> None:
        """Send the picture until it ends."""
        with suppress(ConnectionError):
            while data := await self.waiting.get():
                await viewer.send_bytes(data)
                if self._transport is not None and self.waiting.empty():
                    self._transport.resume_reading()

    async def from_viewer(self, viewer: web.WebSocketResponse) -> None:
        """Pass on what the viewer sends until it ends."""
        async for message in viewer:
            if message.type is not aiohttp.WSMsgType.BINARY or self._transport is None:
                return
            self._transport.write(message.data)
            await self._writable.wait()


async def _carry_picture(
    tunnels: Tunnels, request: web.Request, target: TokenTarget, viewer: str
) -> web.StreamResponse:
    picture = _Picture()
    tunnel = await tunnels.connect_protocol(picture, target, viewer)
    try:
        socket = web.WebSocketResponse(
            protocols=("binary",), max_msg_size=_LARGEST_MESSAGE, compress=False, heartbeat=_HEARTBEAT_SECONDS
        )
        await socket.prepare(request)
        ways = [asyncio.create_task(picture.to_viewer(socket)), asyncio.create_task(picture.from_viewer(socket))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
        await socket.close()
        return socket
    finally:
        tunnel.close()
