"""Requests of clients, carried to ports of sandboxes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Middleware
from yarl import URL

from sandmesh.api.port.v1 import port_pb2
from sandmesh.errors import MeshUnavailable, SandmeshError
from sandmeshd.gateway.ports import pages
from sandmeshd.gateway.ports.agent_call import AgentRefused
from sandmeshd.gateway.ports.client import MOST_PER_PORT, PortUnreachable, Tunnels, open_session
from sandmeshd.gateway.ports.devtools import carry_devtools, check_final
from sandmeshd.gateway.ports.headers import PortOrigin, for_client, for_server
from sandmeshd.gateway.ports.live_view import SHOWN, VIEWS, carry_view
from sandmeshd.gateway.ports.makers import Makers
from sandmeshd.gateway.ports.tokens import Signer, TokenTarget
from sandmeshd.gateway.ports.tunnel import Tunnel
from sandmeshd.runtime.http import EXPOSED_PORT, PORT_HEADER
from sandmeshd.runtime.http.websockets import carry_websocket
from sandmeshd.tenants.shares import ADMINISTRATORS, Shares

PREFIX: Final = "/p/"
MOST_CONNECTIONS: Final = 512
"""Of all owners; one has a quarter at most."""
_WAIT_SECONDS: Final = 15
_LOCAL: Final = ".localhost"
"""The domain of ports where none is set: browsers resolve its names by themselves (RFC 6761), programs may not."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_TOKEN: Final = re.compile(r"[a-z0-9]{40,63}")
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Proxy:
    """Finds the port that a request is for and carries the request there; `close` ends it."""

    def __init__(self, signer: Signer, makers: Makers, tunnels: Tunnels, domain: str | None) -> None:
        self._signer = signer
        self._makers = makers
        self._slots = Shares("connections to exposed ports", MOST_CONNECTIONS, _WAIT_SECONDS)
        self._tunnels = tunnels
        self._suffix = f".{domain.lower()}" if domain else _LOCAL
        self._session = open_session(tunnels)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    def add(self, application: web.Application) -> None:
        """Add the routes, by path and by host."""
        application.router.add_route("*", PREFIX + "{token}{rest:(/.*)?}", self.by_path)
        application.middlewares.append(self._middleware(self._suffix))

    async def by_path(self, request: web.Request) -> web.StreamResponse:
        """Carry a request to http://gateway/p/TOKEN/..."""
        token = request.match_info["token"]
        prefix = PREFIX + token
        path = _raw_path(request)
        if not path.startswith(prefix):
            # Another spelling of the token, such as %61 for a: caches and cookies would take it for another URL.
            return pages.ended()
        if not request.match_info["rest"]:
            raise web.HTTPPermanentRedirect(f"{prefix}/")
        if self._suffix == _LOCAL and _is_local_page(request) and self._is_server(token):
            # Links of the page that begin with a slash, as those of development servers do, then stay with its port.
            port = f":{request.url.port}" if request.url.port else ""
            where = f"http://{token}{_LOCAL}{port}{path[len(prefix) :]}"
            raise web.HTTPTemporaryRedirect(where, headers={"Cache-Control": "no-store"})
        return await self._carry(request, token, prefix, path[len(prefix) :])

    def _is_server(self, token: str) -> bool:
        target = self._signer.read(token)
        return target is not None and target.kind == port_pb2.EXPOSURE_KIND_UNSPECIFIED

    def _middleware(self, suffix: str) -> Middleware:
        @web.middleware
        async def by_host(request: web.Request, handler: Handler) -> web.StreamResponse:
            exposed = EXPOSED_PORT.get()
            token = request.headers.get(PORT_HEADER) if exposed is None else exposed.token
            if token is not None:
                return await self._carry(request, token, "", _raw_path(request))
            name, found, beyond = (request.host.rpartition(":")[0] or request.host).lower().rpartition(suffix)
            # A door may have other names below localhost.
            if not found or beyond or (suffix == _LOCAL and not _TOKEN.fullmatch(name)):
                return await handler(request)
            return await self._carry(request, name, "", _raw_path(request))

        return by_host

    async def _carry(self, request: web.Request, token: str, prefix: str, path: str) -> web.StreamResponse:
        target = self._signer.read(token)
        if target is None:
            return pages.ended()
        try:
            owner = await self._makers.owner(target) or ADMINISTRATORS
        except (SandmeshError, AgentRefused) as why:
            return pages.unreachable(why, target.port, SHOWN.get(target.kind))
        try:
            await self._slots.acquire(owner)
        except MeshUnavailable as error:
            return pages.busy(error.message, round(error.retry_after or 1))
        try:
            return await self._reach(request, target, prefix, path)
        except (SandmeshError, AgentRefused) as why:
            return pages.unreachable(why, target.port, SHOWN.get(target.kind))
        finally:
            self._slots.give(owner)

    async def _reach(self, request: web.Request, target: TokenTarget, prefix: str, path: str) -> web.StreamResponse:
        relayed = PORT_HEADER in request.headers
        place = PortOrigin(f"{_scheme(request)}://{request.host}", prefix, target.port, relayed)
        url = URL(f"http://{self._tunnels.host(target)}{path}", encoded=True)
        try:
            return await self._answer(request, target, place, url)
        except PortUnreachable as error:
            return pages.unreachable(error.why, target.port, SHOWN.get(target.kind))
        except aiohttp.ConnectionTimeoutError:
            return pages.busy(f"the port's {MOST_PER_PORT} connections are in use", _WAIT_SECONDS)
        except aiohttp.ClientError as error:
            return pages.page(502, "The server broke off", f"What listens on the port gave no whole answer: {error}")

    async def _answer(
        self, request: web.Request, target: TokenTarget, place: PortOrigin, url: URL
    ) -> web.StreamResponse:
        if target.kind == port_pb2.EXPOSURE_KIND_DEVTOOLS:
            return await carry_devtools(self._session, request, place, url)
        if target.kind in VIEWS:
            return await carry_view(self._tunnels, request, target, url.path)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await carry_websocket(self._session, request, for_server(request, place), url)
        return await self._request(request, place, url)

    async def _request(self, request: web.Request, place: PortOrigin, url: URL) -> web.StreamResponse:
        body = request.content.iter_any() if request.body_exists else None
        async with self._session.request(
            request.method, url, headers=for_server(request, place), data=body, allow_redirects=False
        ) as answer:
            check_final(answer)
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=for_client(answer.headers, place)
            )
            try:
                await response.prepare(request)
            except ValueError as error:
                raise aiohttp.ClientPayloadError(f"its head cannot be passed on: {error}") from None
            if not await _carry_body(answer, response) and request.transport is not None:
                # The answer had begun: its reader learns by a broken connection that it is not whole.
                request.transport.abort()
            return response


async def _carry_body(answer: aiohttp.ClientResponse, response: web.StreamResponse) -> bool:
    """Pass on each part of an answer as it comes; return whether it is complete."""
    tunnel = answer.connection.transport if answer.connection is not None else None
    try:
        # Events of a server that streams them do not wait for more.
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except aiohttp.ClientError:
        return False
    if isinstance(tunnel, Tunnel) and tunnel.broken is not None:
        # An answer without a length would seem whole.
        return False
    await response.write_eof()
    return True


def _is_local_page(request: web.Request) -> bool:
    """Return whether a browser on this machine opens a page: programs follow the path, which needs no names."""
    navigates = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method in ("GET", "HEAD")
    return navigates and request.scheme == "http" and request.url.host in _LOOPBACK


def _scheme(request: web.Request) -> str:
    """Return by what a client reached the port: a door that runs apart passes it on."""
    outer = request.headers.get("X-Forwarded-Proto", "") if PORT_HEADER in request.headers else ""
    return outer if outer in ("http", "https") else request.scheme


def _raw_path(request: web.Request) -> str:
    """Return the path and query as the client wrote them."""
    if request.raw_path.startswith("/"):
        return request.raw_path
    # A client that takes this for its proxy sends the whole URL.
    return "/" + request.raw_path.partition("://")[2].partition("/")[2]
