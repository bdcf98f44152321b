"""The control plane's routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from aiohttp import web

from sandmesh.errors import SandmeshError
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.builds.routes import TemplateRoutes
from sandmeshd.facades.e2b.control.forks import ForkRoutes
from sandmeshd.facades.e2b.control.keys import ApiKeys
from sandmeshd.facades.e2b.control.meter import SandboxMeter
from sandmeshd.facades.e2b.control.parts import ControlParts
from sandmeshd.facades.e2b.control.sandboxes import SandboxRoutes, own_sandbox
from sandmeshd.facades.e2b.control.snapshots import SnapshotRoutes, unsupported
from sandmeshd.facades.e2b.control.views import Views
from sandmeshd.facades.e2b.errors import ApiError, api_error
from sandmeshd.facades.e2b.events.routes import EventRoutes
from sandmeshd.facades.e2b.guests import Guests
from sandmeshd.facades.e2b.identities import public_id
from sandmeshd.facades.e2b.marks import read_marks
from sandmeshd.facades.e2b.messages import METRICS, SEVERAL_METRICS, check_query
from sandmeshd.facades.e2b.pauses import Pauser
from sandmeshd.facades.e2b.requests import api_key, natural, release
from sandmeshd.facades.e2b.volumes.routes import VolumeRoutes

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Route: TypeAlias = tuple[str, str, Handler]

_READING: Final = ("GET", "HEAD")
_BY_TOKEN: Final = ("/templates/{id}/files/{hash}", "/volumecontent/{id}/{what}")
"""Routes whose requests show a token of this door's in place of a key, where their method is not GET."""

_UNSUPPORTED: Final = (
    "/v3/templates{rest:(/.*)?}",
    "/v2/templates{rest:(/.*)?}",
    "/templates/{id}/{rest:.*}",
    "/secrets{rest:(/.*)?}",
    "/default-templates",
)


def add_routes(application: web.Application, parts: ControlParts, guests: Guests, pauser: Pauser, views: Views) -> None:
    """Add the control plane to an application."""
    routes = [
        *_of_sandboxes(SandboxRoutes(parts, guests, pauser, views), MetricsRoutes(parts.clients, parts.meter)),
        *_of_copies(SnapshotRoutes(parts.clients, parts.catalog), ForkRoutes(parts.clients, pauser, views)),
        *_of_templates(TemplateRoutes(parts.clients, parts.catalog, parts.builder)),
        *_of_events(parts.events),
        *_of_volumes(VolumeRoutes(parts.shelf, parts.secret)),
        *[("*", path, unsupported) for path in _UNSUPPORTED],
    ]
    keys = ApiKeys(parts.clients)
    for method, path, handler in routes:
        by_key = path not in _BY_TOKEN or (method in _READING and path != _BY_TOKEN[1])
        application.router.add_route(method, path, _guarded(handler, keys if by_key else None))


def _of_sandboxes(sandboxes: SandboxRoutes, metrics: MetricsRoutes) -> list[Route]:
    return [
        ("POST", "/v2/sandboxes", sandboxes.create),
        ("POST", "/sandboxes", sandboxes.create),
        ("GET", "/v2/sandboxes", sandboxes.list),
        ("GET", "/sandboxes", sandboxes.list),
        ("GET", "/sandboxes/metrics", metrics.get_several),
        ("*", "/sandboxes/metrics", unsupported),
        ("GET", "/sandboxes/{id}", sandboxes.get),
        ("DELETE", "/sandboxes/{id}", sandboxes.kill),
        ("POST", "/v2/sandboxes/{id}/connect", sandboxes.connect),
        ("POST", "/sandboxes/{id}/connect", sandboxes.connect),
        ("POST", "/sandboxes/{id}/resume", sandboxes.connect),
        ("POST", "/sandboxes/{id}/timeout", sandboxes.set_timeout),
        ("POST", "/sandboxes/{id}/refreshes", sandboxes.refresh),
        ("POST", "/sandboxes/{id}/pause", sandboxes.pause),
        ("PUT", "/sandboxes/{id}/network", sandboxes.set_network),
        ("GET", "/v2/sandboxes/{id}/logs", sandboxes.logs),
        ("GET", "/sandboxes/{id}/logs", sandboxes.logs),
        ("GET", "/sandboxes/{id}/metrics", metrics.get),
    ]


def _of_copies(snapshots: SnapshotRoutes, forks: ForkRoutes) -> list[Route]:
    return [
        ("POST", "/sandboxes/{id}/snapshots", snapshots.create),
        ("GET", "/snapshots", snapshots.list),
        ("POST", "/sandboxes/{id}/fork", forks.create),
    ]


def _of_templates(templates: TemplateRoutes) -> list[Route]:
    return [
        ("POST", "/v3/templates", templates.request_build),
        ("GET", "/templates/{id}/files/{hash}", templates.upload_link),
        ("PUT", "/templates/{id}/files/{hash}", templates.upload),
        ("POST", "/v2/templates/{id}/builds/{build}", templates.start_build),
        ("GET", "/templates/{id}/builds/{build}/status", templates.status),
        ("GET", "/templates", templates.list),
        ("GET", "/v2/templates", templates.list),
        ("POST", "/templates/tags", templates.assign_tags),
        ("DELETE", "/templates/tags", templates.remove_tags),
        ("GET", "/templates/aliases/{id}", templates.alias),
        ("GET", "/templates/{id}", templates.get),
        ("GET", "/templates/{id}/tags", templates.tags),
        ("DELETE", "/templates/{id}", templates.delete),
    ]


def _of_events(events: EventRoutes) -> list[Route]:
    return [
        ("GET", "/events/sandboxes", events.list_events),
        ("GET", "/events/sandboxes/{id}", events.list_events),
        ("GET", "/events/webhooks", events.list_webhooks),
        ("POST", "/events/webhooks", events.add),
        ("GET", "/events/webhooks/{id}", events.get),
        ("PATCH", "/events/webhooks/{id}", events.change),
        ("DELETE", "/events/webhooks/{id}", events.delete),
    ]


def _of_volumes(volumes: VolumeRoutes) -> list[Route]:
    return [
        ("GET", "/volumes", volumes.list),
        ("POST", "/volumes", volumes.create),
        ("GET", "/volumes/{id}", volumes.get),
        ("DELETE", "/volumes/{id}", volumes.delete),
        ("*", "/volumecontent/{id}/{what}", volumes.content),
    ]


def _guarded(handler: Handler, keys: ApiKeys | None) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            if keys is not None:
                # Before the body: nothing of a stranger's is parsed.
                await keys.admit(request)
            return await handler(request)
        except ApiError as error:
            return error.response()
        except SandmeshError as error:
            return api_error(error).response()
        finally:
            release(request)

    return answer


_LATEST: Final = 1 << 40
_MOST_AT_ONCE: Final = 100


class MetricsRoutes:
    """Answers the requests about what sandboxes use."""

    def __init__(self, clients: MeshClients, meter: SandboxMeter) -> None:
        self._clients = clients
        self._meter = meter

    async def get(self, request: web.Request) -> web.Response:
        """Return what a sandbox uses now, and has used since somebody first asked."""
        key = api_key(request)
        check_query(request, METRICS)
        start, end = natural(request.query.get("start", 0), "start", _LATEST), request.query.get("end")
        latest = natural(end, "end", _LATEST) if end else _LATEST
        async with self._clients.client(key) as mesh:
            info, _ = await own_sandbox(mesh, request)
        return web.json_response(await self._meter.history(info, key, start, latest))

    async def get_several(self, request: web.Request) -> web.Response:
        """Return what each of several sandboxes uses now, without those that are paused or not the caller's."""
        key = api_key(request)
        check_query(request, SEVERAL_METRICS)
        names = [name for name in request.query.get("sandbox_ids", "").split(",") if name]
        if not 1 <= len(names) <= _MOST_AT_ONCE:
            raise ApiError(400, f"sandbox_ids: name 1 to {_MOST_AT_ONCE} sandboxes, with commas between them")
        async with self._clients.client(key) as mesh:
            infos = {public_id(sandbox.sandbox_id): sandbox for sandbox in await mesh.sandboxes.list()}
        found = [(name, infos[name]) for name in dict.fromkeys(names) if name in infos]
        running = [(name, info) for name, info in found if info.state == "READY" and read_marks(info.labels)]
        samples = await asyncio.gather(*(self._meter.measure(info, key) for _, info in running))
        return web.json_response({"sandboxes": dict(zip((name for name, _ in running), samples, strict=True))})
