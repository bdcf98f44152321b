"""The console's routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from sandmesh.errors import Denied, InvalidArgument, MethodNotFound, NotFound
from sandmesh.mesh import Capacity
from sandmeshd.contracts.console import COOKIE
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import read_object
from sandmeshd.facades.console import access, assets, cells, files, live, reach, snapshots, terminal, usage
from sandmeshd.facades.console.guard import Guard
from sandmeshd.facades.console.older import available
from sandmeshd.facades.console.records import event_row, sandbox_row, session_row
from sandmeshd.facades.console.sessions import SESSION_SECONDS, ConsoleSessions, Session
from sandmeshd.runtime.addresses import is_open
from sandmeshd.runtime.http import Certificate, HttpAddresses
from sandmeshd.runtime.http.server import open_http

PATH: Final = "/console/"
_API: Final = "/console/api"
_BOX: Final = f"{_API}/sandboxes/{{id}}"
_LONGEST_LEASE: Final = 30 * 24 * 3600
_ACTIONS: Final = ("kill", "renew", "pause", "resume")
_EVENTS: Final = 1_000
_VIEWS: Final = {"computer-use": "desktop", "browser": "browser", "mobile": "mobile"}
"""What a person can watch, by the group of tools that comes with it."""


class Console:
    """Answers the console's pages."""

    def __init__(self, address: str) -> None:
        self._sessions = ConsoleSessions(address)
        self._origin = ""
        self._hosts: set[str] = set()
        self._guard = Guard(self._sessions, self._hosts)

    def serve_at(self, origin: str) -> None:
        """Answer requests for an origin, such as http://127.0.0.1:8580, and no others."""
        self._origin = origin
        self._hosts |= _names(origin)

    def link(self, token: str | None, *, read_only: bool = False) -> str:
        """Return a URL that opens the console once, within five minutes, with what a token of the mesh allows.

        With `read_only` only with what it shows.
        """
        # Browsers send the part after # to no server, and what previews links does not use it up.
        return f"{self._origin}{PATH}#code={self._sessions.make_link(token, read_only=read_only)}"

    def add(self, application: web.Application) -> None:
        """Add the routes to an application."""
        router, opened, within, using = application.router, self._guard.open, self._guard.session, self._guard.user
        for place in ("/", PATH.rstrip("/")):
            router.add_get(place, self._guard.page(_redirect))
        router.add_get(PATH, self._guard.page(_asset))
        router.add_get(f"{PATH}{{name}}", opened(_asset))
        router.add_post(f"{_API}/session", opened(self._begin))
        router.add_get(f"{_API}/session", within(_whoami))
        router.add_delete(f"{_API}/session", within(self._end))
        router.add_get(f"{_API}/live", within(live.follow))
        router.add_get(f"{_API}/mesh", within(_mesh))
        router.add_get(_BOX, within(_sandbox))
        router.add_get(f"{_BOX}/logs", within(_logs))
        router.add_get(f"{_BOX}/terminal", using(terminal.serve_terminal))
        router.add_get(f"{_BOX}/files", using(files.list_directory))
        router.add_get(f"{_BOX}/file", using(files.read_file))
        router.add_put(f"{_BOX}/file", using(files.write_file))
        router.add_delete(f"{_BOX}/file", using(files.remove))
        router.add_post(f"{_BOX}/directory", using(files.make_directory))
        router.add_post(f"{_BOX}/cell", using(cells.run_cell))
        router.add_get(f"{_BOX}/stats", using(usage.show_stats))
        router.add_get(f"{_BOX}/calls", using(usage.show_calls))
        router.add_post(f"{_API}/use", using(usage.show_use))
        # Whoever has the URL of a port uses it.
        router.add_get(f"{_BOX}/ports", using(reach.list_ports))
        router.add_post(f"{_BOX}/ports", using(reach.expose))
        router.add_delete(f"{_BOX}/ports/{{exposure}}", using(reach.revoke))
        router.add_get(f"{_BOX}/network", within(reach.show_network))
        router.add_post(f"{_BOX}/network/{{change:allow|deny}}", using(reach.change_network))
        router.add_post(f"{_BOX}/snapshot", using(snapshots.take))
        router.add_post(f"{_BOX}/{{action:{'|'.join(_ACTIONS)}}}", using(_act))
        router.add_get(f"{_API}/snapshots", within(snapshots.list_snapshots))
        router.add_delete(f"{_API}/snapshots/{{snapshot}}", using(snapshots.delete))
        router.add_get(f"{_API}/access", within(access.show))
        router.add_post(f"{_API}/tokens", using(access.create_token))
        router.add_delete(f"{_API}/tokens/{{token}}", using(access.revoke_token))
        router.add_put(f"{_API}/quota", using(access.set_quota))
        router.add_post(f"{_API}/link", within(self._share))

    async def close(self) -> None:
        """End all sessions."""
        await self._sessions.close()

    async def _begin(self, request: web.Request) -> web.Response:
        self._guard.check_origin(request)
        code = (await read_object(request)).get("code")
        begun = await self._sessions.begin(code) if isinstance(code, str) else None
        if begun is None:
            raise RequestError(401, "this link was used or has expired: get a new one by `sandmesh console`")
        key, session = begun
        response = web.json_response(session_row(session))
        response.set_cookie(
            COOKIE,
            key,
            max_age=SESSION_SECONDS,
            path=PATH.rstrip("/"),
            httponly=True,
            samesite="Strict",
            secure=self._origin.startswith("https:"),
        )
        return response

    async def _share(self, _: web.Request, session: Session) -> web.Response:
        """Return a link that shows what this session does, and nothing more."""
        if session.only_shows:
            raise RequestError(403, "a session that a shared link began makes no more links: ask who shared it")
        return web.json_response({"url": self.link(session.token, read_only=True)})

    async def _end(self, request: web.Request, _: Session) -> web.Response:
        await self._sessions.end(request.cookies.get(COOKIE, ""))
        response = web.json_response({})
        response.del_cookie(COOKIE, path=PATH.rstrip("/"))
        return response


@asynccontextmanager
async def open_console(
    address: str, listen: str, certificate: Certificate | None = None, origin: str | None = None
) -> AsyncGenerator[Console]:
    """Serve the console of the mesh at `address` at its own address until the block ends.

    Pages of sandboxes may be at the mesh's HTTP listener: to a browser another port is another origin. `origin` is what
    clients know it by, where that differs, as behind a proxy.

    Raises:
        InvalidArgument: `listen` is open to others and there is no certificate.
        MeshUnavailable: It cannot be listened at.
    """
    if is_open(listen) and certificate is None:
        fix = "give --tls-cert and --tls-key, or listen at 127.0.0.1 and put a proxy with TLS before it (--origin)"
        message = f"the console does not listen at {listen}, where others could read what is sent: {fix}"
        raise InvalidArgument(message, {"address": listen, "fix": fix})
    console = Console(address)
    await asyncio.to_thread(assets.files)
    async with open_http(HttpAddresses((listen,)), [console.add], certificate) as urls:
        console.serve_at(origin.rstrip("/") if origin else urls[0])
        try:
            yield console
        finally:
            await console.close()


async def _redirect(_: web.Request) -> web.Response:
    return web.Response(status=308, headers={"Location": PATH})


async def _asset(request: web.Request) -> web.Response:
    name = request.match_info.get("name", "index.html")
    content = (await asyncio.to_thread(assets.files)).get(name)
    if content is None:
        raise RequestError(404, "the console has no such page")
    return web.Response(body=content, content_type=assets.TYPES[PurePath(name).suffix], charset="utf-8")


async def _whoami(_: web.Request, session: Session) -> web.Response:
    await session.mesh.whoami()  # A token that was revoked has ended the session.
    return web.json_response(session_row(session))


async def _sandbox(request: web.Request, session: Session) -> web.Response:
    """Return a sandbox and its events, which outlive it."""
    sandbox_id = request.match_info["id"]
    events = await available(session.mesh.events.list(sandbox_id, limit=_EVENTS), "events", []) or []
    row: dict[str, Any] | None = None
    try:
        found = await session.mesh.sandboxes.get(sandbox_id)
        row = {**sandbox_row(found), "views": await _views(session, found.template)}
    except MethodNotFound:
        raise
    except (NotFound, InvalidArgument):
        if not events:
            raise
    return web.json_response({"sandbox": row, "events": [event_row(event) for event in events]})


async def _views(session: Session, template: str) -> list[str]:
    """Return the kinds of views that sandboxes of a template have."""
    try:
        templates = await session.mesh.templates.list()
    except (Denied, MethodNotFound):
        # A token for one sandbox lists no templates: its tab of ports opens views all the same.
        return []
    groups = next((one.tool_groups for one in templates if one.name == template), ())
    return [kind for group, kind in _VIEWS.items() if group in groups]


async def _logs(request: web.Request, session: Session) -> web.Response:
    chunk = await session.mesh.sandboxes.logs(request.match_info["id"])
    return web.json_response({"text": chunk.data.decode(errors="backslashreplace")})


async def _act(request: web.Request, session: Session) -> web.Response:
    sandbox_id, action = request.match_info["id"], request.match_info["action"]
    if action == "kill":
        await session.mesh.sandboxes.kill(sandbox_id)
        return web.json_response({})
    async with session.box(sandbox_id) as box:
        match action:
            case "renew":
                await box.renew(await _seconds(request))
            case "pause":
                await box.pause()
            case _:
                await box.resume()
    return web.json_response({})


async def _seconds(request: web.Request) -> float:
    seconds = (await read_object(request)).get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST_LEASE:
        raise RequestError(400, f"seconds is a number above 0 and at most {_LONGEST_LEASE}")
    return seconds


async def _mesh(_: web.Request, session: Session) -> web.Response:
    """Return what the mesh has; its health only for those who may see it."""
    mesh, missing = session.mesh, list[str]()
    capacity, templates, health = await asyncio.gather(
        available(mesh.capacity(), "capacity", missing),
        available(mesh.templates.list(), "templates", missing),
        available(mesh.health(), "nodes and health", missing),
    )
    listed = [
        {
            "name": template.name,
            "description": template.description,
            "image": template.image,
            "nodes": [
                {"id": node.node_id, "driver": node.driver, "prepared": node.prepared} for node in template.nodes
            ],
        }
        for template in templates or ()
    ]
    return web.json_response(
        {
            "capacity": None if capacity is None else _capacity_row(capacity),
            "templates": listed,
            "health": None if health is None else health.to_json(),
            "missing": missing,
        }
    )


def _capacity_row(capacity: Capacity) -> dict[str, Any]:
    return {
        "used": capacity.used,
        "limit": capacity.limit,
        "queued": capacity.queued,
        "nodes": dict(capacity.nodes),
        "pools": dict(capacity.pools),
        "by_template": dict(capacity.templates),
    }


def _names(origin: str) -> set[str]:
    """Return what a browser may call the console: its origin's host, and on loopback this machine's names."""
    parts = urlsplit(origin)
    names = {parts.netloc}
    if not is_open(f"{parts.hostname}:0"):
        names |= {f"{host}:{parts.port}" for host in ("localhost", "127.0.0.1")}
    return names
