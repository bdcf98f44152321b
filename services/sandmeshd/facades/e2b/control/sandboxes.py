"""Routes of sandboxes: create, connect, list, and what changes one."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from sandmesh import SandboxAsync
from sandmesh.errors import TemplateNotFound
from sandmesh.mesh import MeshAsync, SandboxInfo
from sandmeshd.facades.e2b.builds.catalog import CatalogBuild
from sandmeshd.facades.e2b.builds.starts import NotReady, run_start
from sandmeshd.facades.e2b.control.creation import (
    LONGEST_SECONDS,
    Creation,
    read_creation,
    read_network,
    unknown_template,
)
from sandmeshd.facades.e2b.control.keys import may_use
from sandmeshd.facades.e2b.control.pages import read_filters
from sandmeshd.facades.e2b.control.parts import ControlParts
from sandmeshd.facades.e2b.control.views import Views
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import ENDED, Guests
from sandmeshd.facades.e2b.identities import mesh_id, public_id
from sandmeshd.facades.e2b.marks import Marks, read_marks
from sandmeshd.facades.e2b.mcp.servers import NamedServers, start_servers
from sandmeshd.facades.e2b.messages import (
    CONNECT,
    CREATE,
    LIST,
    LOGS,
    NETWORK_UPDATE,
    PAUSE,
    REFRESH,
    RESUME,
    TIMEOUT,
    check_query,
    read_fields,
)
from sandmeshd.facades.e2b.pauses import Pauser, end_processes
from sandmeshd.facades.e2b.requests import api_key, natural, text

_LEVELS: Final = ("debug", "info", "warn", "error")
_ANSWERED_SECONDS: Final = 5.0


class SandboxRoutes:
    """Answers the requests about sandboxes, each in the name of its key."""

    def __init__(self, parts: ControlParts, guests: Guests, pauser: Pauser, views: Views) -> None:
        self._clients = parts.clients
        self._catalog = parts.catalog
        self._shelf = parts.shelf
        self._pauser = pauser
        self._guests = guests
        self._views = views

    async def create(self, request: web.Request) -> web.Response:
        """Make a sandbox."""
        key, found = api_key(request), await read_fields(request, CREATE)
        async with self._clients.client(key) as mesh:
            origin = await self._catalog.origin(mesh, text(found, "templateID") or "base")
            creation = read_creation(request, found, origin)
            await self._shelf.check(key, *creation.marks.volumes.values())
            sandbox_id = await _make(mesh, creation, request.headers.get("Idempotency-Key"))
            if creation.servers.repositories:
                await self._add_servers(mesh, sandbox_id, key, creation.servers)
            if origin.build is not None:
                await self._start(mesh, sandbox_id, origin.build)
        if creation.marks.auto_pause:
            self._pauser.note()
        return web.json_response(self._views.created(sandbox_id, creation.marks), status=201)

    async def list(self, request: web.Request) -> web.Response:
        """List the caller's sandboxes."""
        check_query(request, LIST)
        filters = read_filters(request)
        async with self._clients.client(api_key(request)) as mesh:
            infos = await mesh.sandboxes.list()
        page, following = filters.page(infos)
        running = sum(info.in_use and read_marks(info.labels) is not None for info in infos)
        headers = {"X-Total-Running": str(running)} | ({"x-next-token": following} if following else {})
        return web.json_response([self._views.listed(*one) for one in page], headers=headers)

    async def get(self, request: web.Request) -> web.Response:
        """Return what is known of a sandbox."""
        async with self._clients.client(api_key(request)) as mesh:
            info, marks = await own_sandbox(mesh, request)
        return web.json_response(self._views.detailed(info, marks, may_use=may_use(request)))

    async def kill(self, request: web.Request) -> web.Response:
        """End a sandbox."""
        async with self._clients.client(api_key(request)) as mesh:
            info, _ = await own_sandbox(mesh, request)
            await mesh.sandboxes.kill(info.sandbox_id)
        await self._guests.forget(info.sandbox_id)
        return web.Response(status=204)

    async def connect(self, request: web.Request) -> web.Response:
        """Return what a client needs to use a sandbox, wake it if it is paused, and let it live so long at least."""
        message = RESUME if request.path.endswith("/resume") else CONNECT
        key, found = api_key(request), await read_fields(request, message)
        seconds = natural(found.get("timeout", 300), "timeout", LONGEST_SECONDS)
        async with self._clients.client(key) as mesh:
            info, marks = await own_sandbox(mesh, request)
        async with self._box(info, key) as box:
            # Before it goes on: one whose time is over would be paused again.
            if seconds > _left(info, marks):
                await box.renew(marks.lease(seconds))
            if info.state == "PAUSED":
                await box.resume()
                if found.get("memory") is False:
                    await end_processes(box)
        status = 201 if info.state == "PAUSED" else 200
        return web.json_response(self._views.created(info.sandbox_id, marks), status=status)

    async def set_timeout(self, request: web.Request) -> web.Response:
        """Set when a sandbox's time is over: so many seconds from now; 0 is now."""
        found = await read_fields(request, TIMEOUT)
        return await self._renew(request, natural(found.get("timeout"), "timeout", LONGEST_SECONDS))

    async def refresh(self, request: web.Request) -> web.Response:
        """Set the seconds from now after which a sandbox ends."""
        found = await read_fields(request, REFRESH)
        return await self._renew(request, natural(found.get("duration", 15), "duration", LONGEST_SECONDS))

    async def pause(self, request: web.Request) -> web.Response:
        """Freeze a sandbox, where its driver can: with what runs, or, without memory, once all of it has ended."""
        key, found = api_key(request), await read_fields(request, PAUSE)
        async with self._clients.client(key) as mesh:
            info, _ = await own_sandbox(mesh, request)
        if info.state == "PAUSED":
            raise ApiError(409, f"sandbox {request.match_info['id']} is paused already")
        async with self._box(info, key) as box:
            if found.get("requireHealthyGuest"):
                await _check_health(box)
            if found.get("memory") is False:
                await end_processes(box)
            await box.pause()
        return web.Response(status=204)

    async def set_network(self, request: web.Request) -> web.Response:
        """Replace what a running sandbox may reach; what is not named is as it is by default."""
        key, found = api_key(request), await read_fields(request, NETWORK_UPDATE)
        grant = read_network(found, internet=found.get("allow_internet_access") is not False)
        async with self._clients.client(key) as mesh:
            info, _ = await own_sandbox(mesh, request)
        async with self._box(info, key) as box:
            await box.network.set("public" if grant is None else grant)
        return web.Response(status=204)

    async def logs(self, request: web.Request) -> web.Response:
        """Return the end of a sandbox's log, whose lines have neither a level nor a time."""
        check_query(request, LOGS)
        direction, searched = request.query.get("direction", "forward"), request.query.get("search", "")
        if direction not in ("forward", "backward"):
            raise ApiError(400, "direction is forward or backward")
        if (level := request.query.get("level", "info")) not in _LEVELS:
            raise ApiError(400, f"level is {', '.join(_LEVELS)}")
        is_shown = level in ("debug", "info")
        async with self._clients.client(api_key(request)) as mesh:
            info, _ = await own_sandbox(mesh, request)
            chunk = await mesh.sandboxes.logs(info.sandbox_id)
        limit = natural(request.query.get("limit", 1000), "limit", 1000)
        lines = chunk.data.decode(errors="backslashreplace").splitlines()
        lines = [line for line in lines if searched in line and is_shown]
        lines = lines[-limit:][:: -1 if direction == "backward" else 1] if limit else []
        moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        fields: dict[str, str] = {}
        logs = [{"timestamp": moment, "message": line, "level": "info", "fields": fields} for line in lines]
        return web.json_response({"logs": logs})

    async def _add_servers(self, mesh: MeshAsync, sandbox_id: str, key: str, servers: NamedServers) -> None:
        try:
            async with SandboxAsync(sandbox_id, base_url=self._clients.address, bearer_token=key) as box:
                await start_servers(box, servers)
        except BaseException:
            await mesh.sandboxes.kill(sandbox_id)
            raise

    async def _start(self, mesh: MeshAsync, sandbox_id: str, build: CatalogBuild) -> None:
        if not (build.start or build.ready):
            return
        try:
            guest = await self._guests.guest(public_id(sandbox_id))
            await run_start(guest, build.build_id, build.start, build.ready, {})
        except NotReady as error:
            await mesh.sandboxes.kill(sandbox_id)
            raise ApiError(400, str(error)) from None

    async def _renew(self, request: web.Request, seconds: int) -> web.Response:
        key = api_key(request)
        async with self._clients.client(key) as mesh:
            info, marks = await own_sandbox(mesh, request)
        if seconds == 0 and not marks.auto_pause:
            return await self.kill(request)
        async with self._box(info, key) as box:
            await box.renew(marks.lease(seconds))
        return web.Response(status=204)

    def _box(self, info: SandboxInfo, key: str) -> SandboxAsync:
        return SandboxAsync(info.sandbox_id, base_url=self._clients.address, bearer_token=key)


async def own_sandbox(mesh: MeshAsync, request: web.Request) -> tuple[SandboxInfo, Marks]:
    """Return the caller's sandbox that a route names.

    Raises:
        ApiError: There is none, or it is another's.
    """
    name = request.match_info["id"]
    missing = ApiError(404, f"sandbox '{name}' not found")
    sandbox_id = mesh_id(name)
    if sandbox_id is None:
        raise missing
    try:
        info = await mesh.sandboxes.get(sandbox_id)
    except LookupError:
        raise missing from None
    marks = read_marks(info.labels)
    if marks is None or info.state in ENDED:
        raise missing
    return info, marks


async def _check_health(box: SandboxAsync) -> None:
    """Check that a sandbox's agent answers.

    Raises:
        ApiError: It does not.
    """
    try:
        async with asyncio.timeout(_ANSWERED_SECONDS):
            healthy = await box.check_health()
    except TimeoutError:
        healthy = False
    if not healthy:
        raise ApiError(503, "requireHealthyGuest: the sandbox's agent does not answer, so that it is not paused")


async def _make(mesh: MeshAsync, creation: Creation, idempotency_key: str | None) -> str:
    session_id = f"e2b-{idempotency_key or uuid.uuid4().hex}"
    try:
        session = await mesh.sessions.connect(session_id, sandbox_type=creation.template, **creation.options)
    except TemplateNotFound as error:
        raise unknown_template(creation.marks.template, error.facts.get("known", "")) from None
    (sandbox_id,) = session.sandboxes.values()
    if creation.seconds == 0 and not creation.marks.auto_pause:
        await mesh.sandboxes.kill(sandbox_id)
    return sandbox_id


def _left(info: SandboxInfo, marks: Marks) -> float:
    return (marks.ends(info.lease.expires) - datetime.now(UTC)).total_seconds() if info.lease is not None else 0.0
