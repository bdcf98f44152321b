"""Routes of templates: builds, names and tags, each in the name of its key."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from aiohttp import web

from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.builds.builder import Builder, Wanted
from sandmeshd.facades.e2b.builds.catalog import (
    DEFAULT_TAG,
    TAG,
    Catalog,
    CatalogBuild,
    CatalogTemplate,
    Origin,
    Owned,
    own_snapshots,
    read_name,
)
from sandmeshd.facades.e2b.builds.plan import no_such_base, read_plan, read_resources
from sandmeshd.facades.e2b.control.keys import owner
from sandmeshd.facades.e2b.control.templates import TEMPLATES as NAMES
from sandmeshd.facades.e2b.control.templates import mesh_template
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.messages import (
    ASSIGN_TAGS,
    BUILD,
    BUILD_REQUEST,
    BUILD_STATUS,
    REMOVE_TAGS,
    TEMPLATE,
    TEMPLATES,
    check_query,
    read_fields,
)
from sandmeshd.facades.e2b.requests import api_key, natural, text

PAGE = 100
MOST_TAGS = 64


class TemplateRoutes:
    """Answers the requests about templates."""

    def __init__(self, clients: MeshClients, catalog: Catalog, builder: Builder) -> None:
        self._clients = clients
        self._catalog = catalog
        self._builder = builder

    async def request_build(self, request: web.Request) -> web.Response:
        """Return the ids of a build that is to follow; its files come first."""
        key, found = api_key(request), await read_fields(request, BUILD_REQUEST)
        name, tag = read_name(text(found, "name") or text(found, "alias"))
        tags = sorted({tag, *_tags(found)} - {""}) or [DEFAULT_TAG]
        resources = read_resources(found)
        async with self._clients.client(key) as mesh:
            template = self._catalog.template(name, await own_snapshots(mesh))
            if name in {one.name for one in await mesh.templates.list()}:
                raise ApiError(409, f"{name!r} is a template of the mesh: choose another name")
        if template is None:
            template = CatalogTemplate(template_id=f"tpl{uuid.uuid4().hex[:20]}", name=name)
        wanted = Wanted(template, tags, resources, owner(request))
        build_id = await self._builder.expect(key, wanted)
        names = {"names": [name], "aliases": [name], "tags": tags, "public": False}
        return web.json_response({"templateID": template.template_id, "buildID": build_id, **names}, status=202)

    async def upload_link(self, request: web.Request) -> web.Response:
        """Return where a client puts the files of a step."""
        pending = self._builder.latest(await self._valid_key(request), request.match_info["id"])
        files_hash = request.match_info["hash"]
        present = self._builder.uploads.has(pending.build_id, files_hash)
        token = self._builder.uploads.token(pending.build_id, files_hash)
        url = f"{request.url.origin()}{request.path}?build={pending.build_id}&token={token}"
        return web.json_response({"present": present, "url": url}, status=201)

    async def upload(self, request: web.Request) -> web.Response:
        """Keep the files of a step until the build has ended."""
        build_id, files_hash = request.query.get("build", ""), request.match_info["hash"]
        self._builder.uploads.check(build_id, files_hash, request.query.get("token", ""))
        await self._builder.uploads.write(build_id, files_hash, request.content.iter_any())
        return web.Response(status=200)

    async def start_build(self, request: web.Request) -> web.Response:
        """Begin a build."""
        key, found = await self._valid_key(request), await read_fields(request, BUILD)
        pending = self._builder.pending(key, request.match_info["id"], request.match_info["build"])
        plan = read_plan(found)
        async with self._clients.client(key) as mesh:
            origin = await self._catalog.origin(mesh, plan.base)
            own = self._builder.base_image if plan.base == "base" and origin.build is None else ""
            if own:
                plan = replace(plan, image=own, pulls=True)
            elif origin.template not in {template.name for template in await mesh.templates.list()}:
                if not plan.image:
                    raise no_such_base(plan)
                plan, origin = replace(plan, pulls=True), Origin(mesh_template("base"))
        self._builder.start(key, pending, plan, origin)
        return web.Response(status=202)

    async def status(self, request: web.Request) -> web.Response:
        """Return how far a build is, and a page of its log."""
        check_query(request, BUILD_STATUS)
        offset = natural(request.query.get("logsOffset", 0), "logsOffset")
        limit = natural(request.query.get("limit", PAGE), "limit", PAGE)
        key = await self._valid_key(request)
        pending = self._builder.pending(key, request.match_info["id"], request.match_info["build"])
        return web.json_response(pending.view(offset, limit))

    async def list(self, request: web.Request) -> web.Response:
        """List the caller's templates, and the names of E2B's own."""
        check_query(request, TEMPLATES)
        bounds = _bounds(request)
        async with self._clients.client(api_key(request)) as mesh:
            snapshots = await own_snapshots(mesh)
        own = [_view(one, snapshots) for one in self._catalog.owned(snapshots)]
        known = [{"templateID": name, "aliases": [name], "names": [name], "public": True} for name in NAMES]
        page, following = _page([*known, *own], *bounds)
        return web.json_response(page, headers=following)

    async def get(self, request: web.Request) -> web.Response:
        """Return a template with its builds."""
        check_query(request, TEMPLATE)
        bounds = _bounds(request)
        template, snapshots = await self._own(request)
        builds = [_build_view(build, template) for build in template.builds.values() if build.snapshot_id in snapshots]
        page, following = _page(builds, *bounds)
        return web.json_response({**_view(template, snapshots), "builds": page}, headers=following)

    async def alias(self, request: web.Request) -> web.Response:
        """Return the template of a name."""
        name = request.match_info["id"]
        if name in NAMES:
            await self._valid_key(request)
            return web.json_response({"templateID": name, "public": True})
        template, _ = await self._own(request)
        return web.json_response({"templateID": template.template_id, "public": False})

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a template with its builds, or a snapshot: clients name it as a template."""
        name = request.match_info["id"]
        async with self._clients.client(api_key(request)) as mesh:
            snapshots = await own_snapshots(mesh)
            wanted = self._deleted(name, snapshots)
            if not wanted:
                raise ApiError(404, f"template '{name}' not found")
            for snapshot_id in wanted:
                await mesh.snapshots.delete(snapshot_id)
        await self._catalog.forget(wanted)
        return web.Response(status=204)

    async def assign_tags(self, request: web.Request) -> web.Response:
        """Set tags at the build of a name."""
        found = await read_fields(request, ASSIGN_TAGS)
        target, tags = text(found, "target"), _tags(found)
        async with self._clients.client(api_key(request)) as mesh:
            snapshots = await own_snapshots(mesh)
        template, build = self._catalog.template(target.partition(":")[0], snapshots), None
        if template is not None:
            build = self._catalog.build(target, snapshots)
        if template is None or build is None:
            raise ApiError(404, f"template '{target}' not found")
        if not tags:
            raise ApiError(400, "tags is a list of at least one tag")
        await self._catalog.add(template, build, tags)
        return web.json_response({"buildID": build.build_id, "tags": tags}, status=201)

    async def remove_tags(self, request: web.Request) -> web.Response:
        """Remove tags; the builds stay. What is not there any more is removed, too, as long as one of them is."""
        found = await read_fields(request, REMOVE_TAGS)
        name, tags = text(found, "name"), _tags(found)
        async with self._clients.client(api_key(request)) as mesh:
            template = self._catalog.template(name, await own_snapshots(mesh))
        if template is None or template.tags.keys().isdisjoint(tags):
            raise ApiError(404, f"template '{name}' has no tags {', '.join(tags)}")
        for tag in tags:
            template.tags.pop(tag, None)
        await self._catalog.save()
        return web.Response(status=204)

    async def tags(self, request: web.Request) -> web.Response:
        """List the tags of a template."""
        template, _ = await self._own(request)
        views = [
            {"tag": tag, "buildID": at.build_id, "createdAt": _moment(at.assigned)}
            for tag, at in sorted(template.tags.items())
        ]
        return web.json_response(views)

    async def _valid_key(self, request: web.Request) -> str:
        """Return a request's key; what the door knows by itself is only for keys that the mesh takes."""
        key = api_key(request)
        async with self._clients.client(key) as mesh:
            await mesh.capacity()
        return key

    async def _own(self, request: web.Request) -> tuple[CatalogTemplate, Owned]:
        name = request.match_info["id"]
        async with self._clients.client(api_key(request)) as mesh:
            snapshots = await own_snapshots(mesh)
        template = self._catalog.template(name.partition(":")[0], snapshots)
        if template is None:
            raise ApiError(404, f"template '{name}' not found")
        return template, snapshots

    def _deleted(self, name: str, snapshots: Owned) -> set[str]:
        if name in snapshots:
            return {name}
        bare, _, tag = name.partition(":")
        template = self._catalog.template(bare, snapshots)
        if template is None:
            return set()
        builds = list(template.builds.values()) if not tag else [build for build in [template.tagged(tag)] if build]
        return {build.snapshot_id for build in builds if build.snapshot_id in snapshots}


def _bounds(request: web.Request) -> tuple[int, int]:
    """Return where the page that a query asks for begins, and how much it holds."""
    limit = natural(request.query.get("limit") or PAGE, "limit", PAGE) or PAGE
    return natural(request.query.get("nextToken") or 0, "nextToken"), limit


def _page(found: list[dict[str, Any]], first: int, limit: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a page, and the header that says where the next begins."""
    more = first + limit < len(found)
    return found[first : first + limit], {"x-next-token": str(first + limit)} if more else {}


def _tags(found: dict[str, Any]) -> list[str]:
    value: object = found.get("tags") or []
    tags = cast("list[object]", value) if isinstance(value, list) else [value]
    if len(tags) > MOST_TAGS:
        raise ApiError(400, f"tags is a list of at most {MOST_TAGS} strings")
    for tag in tags:
        if not isinstance(tag, str) or TAG.fullmatch(tag) is None:
            raise ApiError(400, f"{tag!r} is not a tag: use letters, digits, '-', '_' and '.'")
    return [str(tag) for tag in tags]


def _view(template: CatalogTemplate, snapshots: Owned) -> dict[str, Any]:
    builds = [build for build in template.builds.values() if build.snapshot_id in snapshots]
    newest = max(builds, key=lambda one: one.created)
    return {
        "templateID": template.template_id,
        "buildID": newest.build_id,
        "aliases": [template.name],
        "names": [template.name],
        "public": False,
        "cpuCount": max(1, round(newest.cpus or 1)),
        "memoryMB": (newest.memory or 0) >> 20,
        "createdAt": _moment(min(build.created for build in builds)),
        "updatedAt": _moment(newest.created),
        "buildCount": len(builds),
        "buildStatus": "ready",
    }


def _build_view(build: CatalogBuild, template: CatalogTemplate) -> dict[str, Any]:
    moment = _moment(build.created)
    return {
        "buildID": build.build_id,
        "status": "ready",
        "tags": template.tags_of(build.build_id),
        "createdAt": moment,
        "updatedAt": moment,
        "finishedAt": moment,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
