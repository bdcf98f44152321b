"""Serves MCP clients over HTTP, by the protocol's streamable transport."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp import types
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from sandmesh import SandmeshError
from sandmesh.errors import Denied, Exhausted, NotFound
from sandmeshd.facades.clients import owner_of
from sandmeshd.facades.http import TokenCheck, bearer_token, serve_http
from sandmeshd.facades.mcp.sessions import HttpSessions
from sandmeshd.facades.mcp.settings import AdapterSettings, McpHttpSettings

NAME = "the MCP adapter"
PATH = "/mcp"
LARGEST_BODY = 64 << 20
UNSUPPORTED_VERSION = -32022


@asynccontextmanager
async def open_http_adapter(adapter: AdapterSettings, http: McpHttpSettings) -> AsyncGenerator[tuple[str, ...]]:
    """Serve until the block ends, which ends all sessions with their sandboxes. Yields the URLs.

    Raises:
        InvalidArgument: An address is open to others without what protects it, or a certificate cannot be used.
        MeshUnavailable: An address cannot be listened at.
    """
    sessions = HttpSessions(adapter, http)
    application = McpApplication(sessions, TokenCheck(adapter.base_url, required=http.token_required))
    async with serve_http(NAME, http, application, error_response) as addresses:
        try:
            yield tuple(f"{address}{PATH}" for address in addresses)
        finally:
            await sessions.close()


class McpApplication:
    """The ASGI application that routes requests to MCP sessions, once version and token are checked."""

    def __init__(self, sessions: HttpSessions, tokens: TokenCheck) -> None:
        self._sessions = sessions
        self._tokens = tokens
        self._limited = RequestBodyLimitMiddleware(self._handle, LARGEST_BODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        version = request.headers.get("mcp-protocol-version")
        if request.url.path != PATH:
            await error_response(404, f"MCP is served at {PATH}")(scope, receive, send)
        elif version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await _unsupported(version)(scope, receive, send)
        else:
            await self._limited(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        token = bearer_token(request)
        try:
            principal = await self._tokens.check(token)
            owner = owner_of(principal) if principal is not None else ""
            await self._sessions.handle(token, owner, request, send)
        except SandmeshError as error:
            await _refusal(error)(scope, receive, send)


def _refusal(error: SandmeshError) -> Response:
    if isinstance(error, Denied):
        description = json.dumps(error.message)
        response = error_response(401, error.message)
        response.headers["WWW-Authenticate"] = f'Bearer error="invalid_token", error_description={description}'
        return response
    if isinstance(error, NotFound):
        return error_response(404, error.message)
    if isinstance(error, Exhausted) or error.retry_after is not None:
        response = error_response(503, f"{error.reason}: {error.message}")
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after or 1)))
        return response
    return error_response(502, error.message)


def _unsupported(version: str) -> Response:
    data = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version}
    message = "this version of the protocol has no sessions, which sandboxes are tied to"
    return error_response(400, message, UNSUPPORTED_VERSION, data)


def error_response(status: int, message: str, code: int = types.INVALID_REQUEST, data: object = None) -> Response:
    """Return an error of JSON-RPC that answers no request."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)
