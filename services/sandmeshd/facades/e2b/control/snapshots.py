"""Routes of snapshots, and the refusals of what there is none of here."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from aiohttp import web

from sandmesh.mesh import MeshAsync
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.builds.catalog import (
    DEFAULT_TAG,
    Catalog,
    CatalogBuild,
    CatalogTemplate,
    own_snapshots,
    read_name,
)
from sandmeshd.facades.e2b.control.sandboxes import own_sandbox
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.identities import public_id
from sandmeshd.facades.e2b.messages import SNAPSHOT, SNAPSHOTS, check_query, read_fields
from sandmeshd.facades.e2b.requests import api_key, natural, text

PAGE = 100


class SnapshotRoutes:
    """Answers the requests about snapshots, each in the name of its key."""

    def __init__(self, clients: MeshClients, catalog: Catalog) -> None:
        self._clients = clients
        self._catalog = catalog

    async def create(self, request: web.Request) -> web.Response:
        """Save a sandbox's files, under a name where the client wants one."""
        found = await read_fields(request, SNAPSHOT)
        if found.get("memory"):
            raise ApiError(400, "memory: snapshots keep only files here; leave it out, or send false")
        wanted = text(found, "name")
        name, tag = read_name(wanted) if wanted else ("", "")
        async with self._clients.client(api_key(request)) as mesh:
            info, marks = await own_sandbox(mesh, request)
            if info.state == "PAUSED":
                raise ApiError(409, f"sandbox {request.match_info['id']} is paused: connect to it first")
            snapshot = await mesh.snapshots.create(info.sandbox_id)
            if name:
                build = CatalogBuild(
                    build_id=str(uuid.uuid4()),
                    snapshot_id=snapshot.snapshot_id,
                    workdir=marks.workdir,
                    user=marks.user,
                )
                await self._name(mesh, name, tag or DEFAULT_TAG, build)
        names = self._catalog.names_of(snapshot.snapshot_id)
        return web.json_response({"snapshotID": snapshot.snapshot_id, "names": names}, status=201)

    async def list(self, request: web.Request) -> web.Response:
        """List the caller's snapshots."""
        check_query(request, SNAPSHOTS)
        limit = natural(request.query.get("limit", PAGE), "limit", PAGE) or PAGE
        first = natural(request.query.get("nextToken") or 0, "nextToken")
        async with self._clients.client(api_key(request)) as mesh:
            listed = await mesh.snapshots.list()
        wanted, name = request.query.get("sandboxID"), request.query.get("name", "")
        saved = [snapshot for snapshot in listed.snapshots if snapshot.snapshot_id not in self._catalog.of_templates()]
        of_sandbox = [snapshot for snapshot in saved if wanted in (None, public_id(snapshot.sandbox_id))]
        named = [(one.snapshot_id, self._catalog.names_of(one.snapshot_id)) for one in of_sandbox]
        found = [{"snapshotID": one, "names": names} for one, names in named if not name or _is_named(names, name)]
        more = first + limit < len(found)
        headers = {"x-next-token": str(first + limit)} if more else {}
        return web.json_response(found[first : first + limit], headers=headers)

    async def _name(self, mesh: MeshAsync, name: str, tag: str, build: CatalogBuild) -> None:
        template = self._catalog.template(name, await own_snapshots(mesh))
        if template is None:
            template = CatalogTemplate(template_id=f"tpl{uuid.uuid4().hex[:20]}", name=name)
        await self._catalog.add(template, build, [tag])


def _is_named(names: Sequence[str], name: str) -> bool:
    return any(name in (one, one.partition(":")[0]) for one in names)


async def unsupported(request: web.Request) -> web.Response:
    """Refuse what this mesh does not do, by its name."""
    what = f"{request.method} {request.path}"
    raise ApiError(501, f"{what}: this mesh does not offer it to E2B's clients; docs/e2b.md lists what it does")
