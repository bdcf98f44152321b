"""Routes of snapshots, and the refusals of what there is none of here."""

from __future__ import annotations

from aiohttp import web

from sandmesh.mesh import MeshAsync
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.control.sandboxes import own_sandbox
from sandmeshd.facades.e2b.control.templates import TEMPLATES
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.identities import public_id
from sandmeshd.facades.e2b.requests import api_key, json_object, natural, text, whole_body

PAGE = 100


class SnapshotRoutes:
    """Answers the requests about snapshots, each in the name of its key."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients

    async def create(self, request: web.Request) -> web.Response:
        """Save a sandbox's files."""
        found = json_object(await whole_body(request))
        if text(found, "name"):
            raise ApiError(400, "name: snapshots have no names here; use the snapshotID of the answer")
        async with self._clients.client(api_key(request)) as mesh:
            info, _ = await own_sandbox(mesh, request)
            snapshot = await mesh.snapshots.create(info.sandbox_id)
        return web.json_response({"snapshotID": snapshot.snapshot_id, "names": []}, status=201)

    async def list(self, request: web.Request) -> web.Response:
        """List the caller's snapshots."""
        limit = natural(request.query.get("limit", PAGE), "limit", PAGE) or PAGE
        first = natural(request.query.get("nextToken") or 0, "nextToken")
        async with self._clients.client(api_key(request)) as mesh:
            listed = await mesh.snapshots.list()
        wanted = request.query.get("sandboxID")
        found = [one for one in listed.snapshots if wanted in (None, public_id(one.sandbox_id))]
        names: list[str] = []
        page = [{"snapshotID": one.snapshot_id, "names": names} for one in found[first : first + limit]]
        more = first + limit < len(found)
        return web.json_response(page, headers={"x-next-token": str(first + limit)} if more else {})

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a snapshot: clients name it as a template."""
        name = request.match_info["id"]
        async with self._clients.client(api_key(request)) as mesh:
            if name not in await _ids(mesh):
                raise ApiError(404, f"template '{name}' not found")
            await mesh.snapshots.delete(name)
        return web.Response(status=204)

    async def templates(self, request: web.Request) -> web.Response:
        """List the names of templates that are E2B's; the mesh's own are used by their names."""
        async with self._clients.client(api_key(request)) as mesh:
            await mesh.capacity()
        return web.json_response([{"templateID": name, "aliases": [name], "public": True} for name in TEMPLATES])

    async def alias(self, request: web.Request) -> web.Response:
        """Return the template of a name."""
        name = request.match_info["id"]
        async with self._clients.client(api_key(request)) as mesh:
            await mesh.capacity()
        if name not in TEMPLATES:
            raise ApiError(404, f"template '{name}' not found")
        return web.json_response({"templateID": name, "public": True})


async def unsupported(request: web.Request) -> web.Response:
    """Refuse what this mesh does not do, by its name."""
    what = f"{request.method} {request.path}"
    raise ApiError(501, f"{what}: this mesh does not offer it to E2B's clients; docs/e2b.md lists what it does")


async def _ids(mesh: MeshAsync) -> set[str]:
    listed = await mesh.snapshots.list()
    return {one.snapshot_id for one in listed.snapshots}
