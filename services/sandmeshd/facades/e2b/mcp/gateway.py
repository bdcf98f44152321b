"""The port where a sandbox's MCP servers are reached: the mesh's MCP adapter, for only that sandbox."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, TypeAlias

from aiohttp import web
from pydantic import SecretStr

from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import Guest
from sandmeshd.facades.e2b.mcp.servers import FOLDER

PORT: Final = 50_005
TOKEN: Final = f"{FOLDER}/token"
_POLL_SECONDS: Final = 1.0

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Gateways:
    """Serves the gateways of sandboxes, each from its first request on."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients
        self._open: dict[str, tuple[Application, Callable[[], Awaitable[None]]]] = {}

    async def answer(self, guest: Guest, request: web.Request) -> web.StreamResponse:
        """Answer a request to a sandbox's gateway.

        Raises:
            ApiError: It does not show the gateway's token, or this installation has no MCP.
        """
        token = await _token(guest)
        kind, _, shown = request.headers.get("Authorization", "").partition(" ")
        if not token or kind.lower() != "bearer" or not hmac.compare_digest(shown.strip().encode(), token.encode()):
            raise ApiError(401, "send the gateway's token: `Authorization: Bearer ...` with that of get_mcp_token")
        application, _ = self._open.get(guest.sandbox_id) or self._opened(guest)
        return await _AsgiRequest(request).run(application)

    async def forget(self, sandbox_id: str) -> None:
        """End the sessions of a sandbox that has ended."""
        found = self._open.pop(sandbox_id, None)
        if found is not None:
            await found[1]()

    async def close(self) -> None:
        """End all sessions; the sandboxes stay."""
        for sandbox_id in list(self._open):
            await self.forget(sandbox_id)

    def _opened(self, guest: Guest) -> tuple[Application, Callable[[], Awaitable[None]]]:
        try:
            http, mcp_sessions, mcp_settings, front = (
                import_module(f"sandmeshd.facades.{name}")
                for name in ("mcp.http", "mcp.sessions", "mcp.settings", "http")
            )
        except ImportError as error:
            raise ApiError(501, f"MCP gateways need the extra mcp: pip install 'sandmesh[mcp]' ({error})") from None
        own = self._clients.own_token
        adapter = mcp_settings.AdapterSettings(
            base_url=self._clients.address,
            bearer_token=None if own is None else SecretStr(own),
            sandbox_id=guest.sandbox_id,
            groups=tuple(guest.marks.mcp),
        )
        sessions = mcp_sessions.HttpSessions(adapter, mcp_settings.McpHttpSettings(listen=()))
        # The gateway's token is the sandbox's own, and none of the mesh's.
        application = http.McpApplication(sessions, front.TokenCheck(None, required=False))
        found = self._open[guest.sandbox_id] = (application, sessions.close)
        return found


async def _token(guest: Guest) -> str:
    if not guest.mcp_token:
        with suppress(OSError):
            guest.mcp_token = str(await guest.box.fs.read(TOKEN, "text"))
    return guest.mcp_token


class _AsgiRequest:
    """One request to an ASGI application, from aiohttp."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None
        self._is_read = False

    async def run(self, application: Application) -> web.StreamResponse:
        """Run an ASGI application on the request, and return its response."""
        await application(self._scope(), self._receive, self._send)
        return self._response or web.Response(status=500)

    def _scope(self) -> dict[str, Any]:
        request = self._request
        headers = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.raw_path.encode(),
            "query_string": request.query_string.encode(),
            "root_path": "",
            "headers": [header for header in headers if header[0] != b"authorization"],
            "client": None,
            "server": None,
        }

    async def _receive(self) -> Message:
        if not self._is_read:
            chunk = await self._request.content.readany()
            self._is_read = self._request.content.at_eof()
            return {"type": "http.request", "body": chunk, "more_body": not self._is_read}
        while (transport := self._request.transport) is not None and not transport.is_closing():  # noqa: ASYNC110
            # aiohttp does not tell its handlers that a client went away.
            await asyncio.sleep(_POLL_SECONDS)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._response = web.StreamResponse(status=message["status"])
            for name, value in message.get("headers", ()):
                self._response.headers.add(name.decode(), value.decode())
            await self._response.prepare(self._request)
        elif self._response is not None:
            if message.get("body"):
                await self._response.write(message["body"])
            if not message.get("more_body"):
                await self._response.write_eof()
