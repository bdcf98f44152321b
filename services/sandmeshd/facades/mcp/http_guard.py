"""What stands between HTTP and the MCP sessions: names, versions and tokens are checked here."""

from __future__ import annotations

import hashlib
import json
import time

from mcp import types
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from sandmesh import SandboxService, SandmeshError
from sandmesh.errors import Denied, Exhausted, NotFound, Unauthenticated
from sandmeshd.facades.mcp.addresses import Names
from sandmeshd.facades.mcp.sessions import HttpSessions
from sandmeshd.facades.mcp.settings import AdapterSettings

PATH = "/mcp"
HEALTH = "/healthz"
LARGEST_BODY = 64 << 20
UNSUPPORTED_VERSION = -32022


class Tokens:
    """Asks the mesh whether it takes a token, seldom."""

    KEEP_SECONDS = 10.0
    PATIENCE_SECONDS = 10.0
    MOST = 10_000

    def __init__(self, base_url: str | None, *, required: bool) -> None:
        self._base_url = base_url
        self._required = required
        self._taken: dict[bytes, float] = {}

    async def check(self, token: str | None) -> None:
        """Check what a client shows.

        Raises:
            Unauthenticated: It shows none where one is asked for, or one that the mesh does not take.
            SandmeshError: The mesh cannot say.
        """
        if token is None:
            if self._required:
                raise Unauthenticated("send a token of the mesh: `Authorization: Bearer ...`", {"token": "missing"})
            return
        digest = hashlib.sha256(token.encode()).digest()
        if time.monotonic() - self._taken.get(digest, -self.KEEP_SECONDS) < self.KEEP_SECONDS:
            return
        service = SandboxService(self._base_url, token, self.PATIENCE_SECONDS)
        await service.start()
        await service.stop()
        if len(self._taken) >= self.MOST:
            self._taken.clear()
        self._taken[digest] = time.monotonic()


class Door:
    """The ASGI application."""

    def __init__(self, adapter: AdapterSettings, sessions: HttpSessions, names: Names, *, token_required: bool) -> None:
        self._sessions = sessions
        self._names = names
        self._tokens = Tokens(adapter.base_url, required=token_required)
        self._limited = RequestBodyLimitMiddleware(self._enter, LARGEST_BODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        refusal = self._refusal(request)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif request.url.path == HEALTH:
            await PlainTextResponse("ok\n")(scope, receive, send)
        else:
            await self._limited(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if not self._names.takes_host(request.headers.get("host", "")):
            return _said(421, "this name is not the adapter's: call it by its address, or see --allowed-host")
        if not self._names.takes_origin(request.headers.get("origin")):
            return _said(403, "pages of this origin may not use the adapter: see --allowed-origin")
        if request.url.path not in (PATH, HEALTH):
            return _said(404, f"MCP is served at {PATH}")
        version = request.headers.get("mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return _unsupported(version)
        return None

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        token = _shown(request)
        try:
            await self._tokens.check(token)
            await self._sessions.handle(token, request, send)
        except SandmeshError as error:
            await _refused(error)(scope, receive, send)


def _shown(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if kind.lower() == "bearer" else None


def _refused(error: SandmeshError) -> Response:
    if isinstance(error, Denied):
        told = json.dumps(error.message)
        answer = _said(401, error.message)
        answer.headers["WWW-Authenticate"] = f'Bearer error="invalid_token", error_description={told}'
        return answer
    if isinstance(error, NotFound):
        return _said(404, error.message)
    return _said(503, f"{error.reason}: {error.message}") if isinstance(error, Exhausted) else _said(502, error.message)


def _unsupported(version: str) -> Response:
    data = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version}
    message = "this version of the protocol has no sessions, which sandboxes are tied to"
    return _said(400, message, UNSUPPORTED_VERSION, data)


def _said(status: int, message: str, code: int = types.INVALID_REQUEST, data: object = None) -> Response:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)
