"""What people see of a sandbox, at the addresses that the package gives them: its desktop, browser or phone.

The package makes the address of a sandbox's `runtime_token` and shows no other; it leads to the gateway's own page.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import aiohttp
from aiohttp import web
from yarl import URL

from sandmesh.mesh import MeshAsync, PortInfo, SandboxInfo
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.clients import MeshClients
from sandmeshd.runtime.http.websockets import carry_websocket

_Show = Callable[[MeshAsync], Callable[..., Awaitable[PortInfo]]]
_SHOWS: Final[Mapping[str, tuple[str, _Show]]] = {
    "browser": ("browser", lambda mesh: mesh.ports.show_browser),
    "gui": ("desktop", lambda mesh: mesh.ports.show_desktop),
    "desktop": ("desktop", lambda mesh: mesh.ports.show_desktop),
    "mobile": ("mobile", lambda mesh: mesh.ports.show_mobile),
}
"""What is shown of the sandboxes of a template, and what makes its URL."""
_SECONDS: Final = 7 * 86_400.0
_MOST: Final = 10_000
_TAKE_SECONDS: Final = 30.0


class Desktops:
    """The passwords that were given out, with the URLs that they stand for: the oldest are forgotten first."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients
        self._urls: OrderedDict[tuple[str, str], tuple[str, PortInfo]] = OrderedDict()
        self._passwords: dict[str, str] = {}
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to the gateway."""
        if self._http is not None:
            await self._http.close()

    async def password(self, token: str, info: SandboxInfo) -> str | None:
        """Return the password of a sandbox's page; None where it has none, and for a token that may only look.

        Raises:
            SandmeshError: The sandbox is gone.
        """
        if info.template not in _SHOWS:
            return None
        identity = info.sandbox_id
        known = self._passwords.get(identity)
        async with self._clients.client(token) as mesh:
            if (await mesh.whoami()).read_only:
                # The holder of the URL uses the mouse and the keyboard.
                return None
            live = {port.exposure_id for port in await mesh.ports.list(identity)}
            if known and (identity, known) in self._urls and self._urls[identity, known][1].exposure_id in live:
                return known
            kind, show = _SHOWS[info.template]
            made = await show(mesh)(identity, ttl=_SECONDS)
        self._passwords[identity] = password = secrets.token_urlsafe(24)
        self._urls[identity, password] = kind, made
        while len(self._urls) > _MOST:
            (oldest, _), _ = self._urls.popitem(last=False)
            self._passwords.pop(oldest, None)
        return password

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Lead a person to the page, or carry a client's WebSocket to the screen, which it has then.

        Raises:
            RequestError: The password is missing, or of no sandbox's page.
        """
        identity, password = request.match_info["identity"], request.query.get("password")
        if not password:
            raise RequestError(401, "password is missing: it is the runtime_token of get_info")
        if (identity, password) not in self._urls:
            raise RequestError(404, f"{identity} has no such page, or no more: fetch a new URL")
        kind, exposed = self._urls[identity, password]
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return web.Response(status=302, headers={"Location": exposed.url, "Referrer-Policy": "no-referrer"})
        if kind != "desktop":
            raise RequestError(404, f"{request.path}: only a desktop has a WebSocket of VNC")
        return await self._carry(request, URL(exposed.url))

    async def _carry(self, request: web.Request, url: URL) -> web.StreamResponse:
        if self._http is None:
            self._http = aiohttp.ClientSession()
        viewer = {"viewer": secrets.token_hex(16)}
        taking = asyncio.create_task(_take(self._http, (url / "control").with_query(viewer)))
        try:
            headers = request.headers.copy()
            headers.popall("Host", None)
            headers.popall("Origin", None)
            return await carry_websocket(self._http, request, headers, (url / "websocket").with_query(viewer))
        finally:
            taking.cancel()


async def _take(http: aiohttp.ClientSession, url: URL) -> None:
    """Take over as soon as the WebSocket is connected: such clients have no switch for it."""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(_TAKE_SECONDS):
            state: Any = {}
            while state.get("holder") != "you":
                async with http.post(url, data=b"take") as response:
                    state = await response.json() if response.status == 200 else {}
                await asyncio.sleep(0.05)
