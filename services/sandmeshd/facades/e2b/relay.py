"""Requests to ports of sandboxes, passed on to the mesh's gateway by a door that runs apart from it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from sandmeshd.runtime.http import EXPOSED_PORT, PAGE_HEADER, PORT_HEADER, ExposedUrl, Pages
from sandmeshd.runtime.http.headers import end_to_end
from sandmeshd.runtime.http.websockets import carry_websocket

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def open_relay() -> AsyncGenerator[Pages]:
    """Pass requests on until the block ends. Yields what adds this to an application, after the door."""
    async with aiohttp.ClientSession(
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=10.0),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=64 << 10,
        max_field_size=64 << 10,
    ) as session:

        @web.middleware
        async def by_port(request: web.Request, handler: Handler) -> web.StreamResponse:
            exposed = EXPOSED_PORT.get()
            return await (handler(request) if exposed is None else _carry(session, request, exposed))

        yield lambda application: application.middlewares.append(by_port)


async def _carry(session: aiohttp.ClientSession, request: web.Request, exposed: ExposedUrl) -> web.StreamResponse:
    path = request.raw_path if request.raw_path.startswith("/") else request.path_qs
    url = URL(exposed.origin + path, encoded=True)
    headers = end_to_end(request.headers)
    headers[PORT_HEADER] = exposed.token
    headers["X-Forwarded-Proto"] = request.scheme
    try:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await carry_websocket(session, request, headers, url)
        return await _request(session, request, headers, url)
    except aiohttp.ClientError as error:
        return web.Response(status=502, text=f"the mesh's HTTP listener at {exposed.origin} does not answer: {error}\n")


async def _request(
    session: aiohttp.ClientSession, request: web.Request, headers: CIMultiDict[str], url: URL
) -> web.StreamResponse:
    body = request.content.iter_any() if request.body_exists else None
    async with session.request(request.method, url, headers=headers, data=body, allow_redirects=False) as answer:
        found = end_to_end(answer.headers)
        if PAGE_HEADER in found:
            return web.Response(status=answer.status, body=await answer.read(), headers={PAGE_HEADER: "1"})
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=found)
        await response.prepare(request)
        try:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        except aiohttp.ClientError:
            if request.transport is not None:
                # The answer had begun: its reader learns by a broken connection that it is not whole.
                request.transport.abort()
            return response
        await response.write_eof()
        return response
