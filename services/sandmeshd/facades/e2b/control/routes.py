"""The control plane's routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import web

from sandmesh.errors import SandmeshError
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.builds.builder import Builder
from sandmeshd.facades.e2b.builds.catalog import Catalog
from sandmeshd.facades.e2b.builds.routes import TemplateRoutes
from sandmeshd.facades.e2b.control.forks import ForkRoutes
from sandmeshd.facades.e2b.control.metrics import MetricsRoutes
from sandmeshd.facades.e2b.control.sandboxes import SandboxRoutes
from sandmeshd.facades.e2b.control.snapshots import SnapshotRoutes, unsupported
from sandmeshd.facades.e2b.control.views import Views
from sandmeshd.facades.e2b.errors import ApiError, api_error
from sandmeshd.facades.e2b.guests import Guests
from sandmeshd.facades.e2b.pauses import Pauser

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_UNSUPPORTED: Final = (
    "/sandboxes/metrics",
    "/sandboxes/{id}/network",
    "/v3/templates{rest:(/.*)?}",
    "/v2/templates{rest:(/.*)?}",
    "/templates/{id}/{rest:.*}",
    "/volumes{rest:(/.*)?}",
    "/volumecontent{rest:(/.*)?}",
    "/secrets{rest:(/.*)?}",
    "/default-templates",
)


@dataclass(frozen=True)
class Parts:
    """What the routes share with the door."""

    clients: MeshClients
    catalog: Catalog
    builder: Builder


def add_routes(application: web.Application, parts: Parts, guests: Guests, pauser: Pauser, views: Views) -> None:
    """Add the control plane to an application."""
    clients, catalog = parts.clients, parts.catalog
    sandboxes = SandboxRoutes(clients, guests, pauser, views, catalog)
    metrics, snapshots, forks = (
        MetricsRoutes(clients),
        SnapshotRoutes(clients, catalog),
        ForkRoutes(clients, pauser, views),
    )
    templates = TemplateRoutes(clients, catalog, parts.builder)
    routes: list[tuple[str, str, Handler]] = [
        ("POST", "/v2/sandboxes", sandboxes.create),
        ("POST", "/sandboxes", sandboxes.create),
        ("GET", "/v2/sandboxes", sandboxes.list),
        ("GET", "/sandboxes", sandboxes.list),
        ("GET", "/sandboxes/metrics", metrics.get_several),
        *[("*", path, unsupported) for path in _UNSUPPORTED[:1]],
        ("GET", "/sandboxes/{id}", sandboxes.get),
        ("DELETE", "/sandboxes/{id}", sandboxes.kill),
        ("POST", "/v2/sandboxes/{id}/connect", sandboxes.connect),
        ("POST", "/sandboxes/{id}/connect", sandboxes.connect),
        ("POST", "/sandboxes/{id}/resume", sandboxes.connect),
        ("POST", "/sandboxes/{id}/timeout", sandboxes.set_timeout),
        ("POST", "/sandboxes/{id}/refreshes", sandboxes.refresh),
        ("POST", "/sandboxes/{id}/pause", sandboxes.pause),
        ("GET", "/v2/sandboxes/{id}/logs", sandboxes.logs),
        ("GET", "/sandboxes/{id}/logs", sandboxes.logs),
        ("GET", "/sandboxes/{id}/metrics", metrics.get),
        ("POST", "/sandboxes/{id}/snapshots", snapshots.create),
        ("GET", "/snapshots", snapshots.list),
        ("POST", "/sandboxes/{id}/fork", forks.create),
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
        *[("*", path, unsupported) for path in _UNSUPPORTED],
    ]
    for method, path, handler in routes:
        application.router.add_route(method, path, _guarded(handler))


def _guarded(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ApiError as error:
            return error.response()
        except SandmeshError as error:
            return api_error(error).response()

    return answer
