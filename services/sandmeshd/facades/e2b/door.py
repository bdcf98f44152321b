"""The door: finds what each request is for, by its host or its headers, and has it answered."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Middleware

from sandmesh.errors import SandmeshError
from sandmesh.shared.numbers import decimal
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b import interpreter
from sandmeshd.facades.e2b.access import Access
from sandmeshd.facades.e2b.builds.builder import Builder
from sandmeshd.facades.e2b.builds.catalog import Catalog
from sandmeshd.facades.e2b.control.meter import SandboxMeter
from sandmeshd.facades.e2b.control.parts import ControlParts
from sandmeshd.facades.e2b.control.routes import add_routes
from sandmeshd.facades.e2b.control.views import Views
from sandmeshd.facades.e2b.envd import service as envd
from sandmeshd.facades.e2b.errors import ApiError, SandboxGone, api_error, proxy_failure
from sandmeshd.facades.e2b.events.routes import EventRoutes
from sandmeshd.facades.e2b.events.sender import WebhookSender
from sandmeshd.facades.e2b.guests import PAUSED, Guest, Guests, is_away, is_gone
from sandmeshd.facades.e2b.identities import TokenMaker, public_id
from sandmeshd.facades.e2b.mcp import gateway
from sandmeshd.facades.e2b.mcp.gateway import Gateways
from sandmeshd.facades.e2b.pauses import Pauser
from sandmeshd.facades.e2b.requests import MOST_BYTES, ROOM, Room
from sandmeshd.facades.e2b.settings import E2bSettings
from sandmeshd.facades.e2b.volumes.shelf import Shelf
from sandmeshd.runtime.http import EXPOSED_PORT, PAGE_HEADER, ExposedUrl
from sandmeshd.tenants.shares import Shares

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

ENVD: Final = 49_983
INTERPRETER: Final = 49_999
_CONTROL: Final = ("/sandboxes/", "/v2/sandboxes/")
"""Paths that a sandbox's agent does not have."""

_REFUSALS: Final = (401, 403)
_LARGEST_PORT: Final = 65_535
_NAME: Final = re.compile(r"(\d{1,5})-([a-z0-9]{1,60})")


@dataclass(frozen=True)
class DoorTarget:
    """A port of a sandbox that a request is for."""

    name: str
    port: int


class E2bDoor:
    """Answers E2B's clients."""

    def __init__(self, clients: MeshClients, secret: str, folder: Path, settings: E2bSettings) -> None:
        self.host: str | None = None
        """What clients are told of the domain: with its port."""
        self._clients = clients
        self._guests = Guests(clients)
        self._pauser = Pauser(self._guests)
        self._pausing: asyncio.Task[None] | None = None
        self._tokens = TokenMaker(secret)
        self._access = Access(self._tokens)
        self._gateways = Gateways(clients)
        self._messages = Shares("bytes of E2B's messages", MOST_BYTES)
        self._suffix = f".{settings.domain}" if settings.domain else None
        self._sender = WebhookSender(clients, folder / "webhooks")
        events = EventRoutes(clients, self._sender, inward=settings.webhooks_inward)
        catalog = Catalog(folder / "templates.json")
        builder = Builder(clients, catalog, folder / "uploads", settings.base_image)
        self._parts = ControlParts(clients, catalog, builder, Shelf(clients), SandboxMeter(clients), events, secret)

    def add(self, application: web.Application) -> None:
        """Add the door to an application."""
        add_routes(application, self._parts, self._guests, self._pauser, Views(self._tokens, lambda: self.host))
        # Each listener has its own application.
        if self._pausing is None:
            self._pausing = asyncio.create_task(self._pauser.run())
            self._sender.start()
        application.router.add_route("*", "/files", self._signed)
        application.middlewares.insert(0, self._middleware())

    async def close(self) -> None:
        """Close the handles of all sandboxes; the sandboxes stay."""
        if self._pausing is not None:
            self._pausing.cancel()
            await asyncio.wait([self._pausing])
        await self._sender.close()
        await self._parts.builder.close()
        await self._parts.meter.close()
        await self._gateways.close()
        await self._guests.close()

    def _middleware(self) -> Middleware:
        @web.middleware
        async def by_name(request: web.Request, handler: Handler) -> web.StreamResponse:
            target = self._target(request)
            return await (handler(request) if target is None else self._answer(target, request, handler))

        return by_name

    def _target(self, request: web.Request) -> DoorTarget | None:
        name, port = request.headers.get("E2b-Sandbox-Id"), request.headers.get("E2b-Sandbox-Port", str(ENVD))
        if port == str(ENVD) and request.path.startswith(_CONTROL):
            # Older clients name the sandbox to the control plane, too.
            return None
        number = decimal(port, _LARGEST_PORT)
        if name is not None and number is not None:
            return DoorTarget(name, number)
        host = request.host.rpartition(":")[0] or request.host
        if self._suffix is None or not host.lower().endswith(self._suffix):
            return None
        found = _NAME.fullmatch(host.lower().removesuffix(self._suffix))
        return DoorTarget(found[2], int(found[1])) if found else None

    async def _answer(self, target: DoorTarget, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if target.port == ENVD and request.path == "/health":
                return await self._health(target.name)
            return await self._serve(await self._guests.guest(target.name), target, request, handler)
        except SandboxGone as gone:
            return gone.response()
        except ApiError as error:
            if error.status in _REFUSALS:
                self._clients.refused(f"sb_{target.name}", _peer(request))
            return error.response()
        except SandmeshError as error:
            if not is_away(error):
                return api_error(error).response()
            if is_gone(error):
                await self._gateways.forget(f"sb_{target.name}")
                await self._guests.forget(f"sb_{target.name}")
            return SandboxGone(target.name).response()

    async def _serve(
        self, guest: Guest, target: DoorTarget, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        request[ROOM] = Room(self._messages, guest.owner)
        try:
            return await self._reach(guest, target, request, handler)
        finally:
            request[ROOM].release()

    async def _reach(
        self, guest: Guest, target: DoorTarget, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        if target.port == ENVD:
            self._access.check(guest, request)
            await self._wake(guest)
            return await envd.answer(guest, request)
        self._access.check_traffic(guest, request)
        await self._wake(guest)
        if target.port == INTERPRETER:
            # Clients show the token only for executions.
            if request.path == "/execute":
                self._access.check_token(guest, request)
            return await interpreter.answer(guest, request)
        if target.port == gateway.PORT and guest.marks.mcp:
            return await self._gateways.answer(guest, request)
        if not 1 <= target.port <= _LARGEST_PORT:
            raise ApiError(400, "a port is 1 to 65535")
        noted = EXPOSED_PORT.set(await exposed_port(self._clients, guest, target.port))
        try:
            response = await handler(request)
        finally:
            EXPOSED_PORT.reset(noted)
        if PAGE_HEADER in response.headers:
            await self._guests.wake(guest)
            message = "The sandbox is running but port is not open"
            return proxy_failure({"sandboxId": target.name, "message": message, "port": target.port})
        return response

    async def _health(self, name: str) -> web.Response:
        """Return whether a sandbox runs; a question does not wake it."""
        if (await self._guests.check(name)).state == PAUSED:
            raise SandboxGone(name)
        return web.Response(status=204)

    async def _wake(self, guest: Guest) -> None:
        # Others are asked about once they refuse: this costs a request.
        if guest.marks.auto_pause:
            await self._guests.wake(guest)

    async def _signed(self, request: web.Request) -> web.StreamResponse:
        """Answer a signed URL that names no sandbox, as clients make them of E2B_SANDBOX_URL."""
        try:
            sandbox_id = await self._access.signed_for(self._guests, request)
        except ApiError as error:
            if error.status in _REFUSALS:
                self._clients.refused("", _peer(request))
            return error.response()
        except SandmeshError as error:
            return api_error(error).response()
        return await self._answer(DoorTarget(public_id(sandbox_id), ENVD), request, _nowhere)


def _peer(request: web.Request) -> str:
    """Return the client's address as the audit has it."""
    host = request.remote or ""
    return f"ipv6:[{host}]" if ":" in host else f"ipv4:{host}"


async def _nowhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotFound(text=request.path)


_SECONDS: Final = 7 * 86_400.0
_MARGIN: Final = 3_600.0


async def exposed_port(clients: MeshClients, guest: Guest, port: int) -> ExposedUrl:
    """Return where a port of a sandbox is exposed.

    Raises:
        SandmeshError: The sandbox is gone, or has too many ports exposed.
    """
    found, ends = guest.ports.get(port, (None, 0.0))
    if found is None or ends < time.time() + _MARGIN:
        async with clients.client(None) as mesh:
            exposed = await mesh.ports.expose(guest.sandbox_id, port, ttl=_SECONDS)
        found = read_url(exposed.url)
        guest.ports[port] = (found, exposed.expires.timestamp())
    return found


def read_url(url: str) -> ExposedUrl:
    """Return the parts of a port's URL: its token is in the path or the host."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    parts = [part for part in path.split("/") if part]
    return ExposedUrl(parts[-1] if parts else host.partition(".")[0], f"{scheme}://{host}")
