"""Routes of lifecycle events and their webhooks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from aiohttp import web

from sandmesh.errors import InvalidArgument, NotFound
from sandmesh.mesh import MeshAsync, SandboxEvent, SandboxInfo
from sandmeshd.facades.clients import MeshClients, owner_of
from sandmeshd.facades.e2b.control.views import write_time
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.events.lifecycle import FORM, TYPES, team_of, view
from sandmeshd.facades.e2b.events.sender import WebhookSender
from sandmeshd.facades.e2b.identities import mesh_id
from sandmeshd.facades.e2b.messages import Message, check_query, read_fields
from sandmeshd.facades.e2b.requests import api_key, natural, text
from sandmeshd.facades.webhooks.hooks import Hook, WebhookProgress

QUERY: Final = Message({"offset": int, "limit": int, "orderAsc": str, "types": str})
WEBHOOK: Final = Message({"name": str, "url": str, "enabled": bool, "events": list, "signatureSecret": str})
_PAGE, _MOST_LISTED, _READ = 10, 100, 1_000
_MOST_HOOKS: Final = 20
"""Webhooks of one owner."""
_LONGEST: Final = 2_000
_KINDS: Final = {name: kind for kind, name in TYPES.items()}


class EventRoutes:
    """Answers the requests about events, each in the name of its key."""

    def __init__(self, clients: MeshClients, sender: WebhookSender, *, inward: bool) -> None:
        self._clients = clients
        self._sender = sender
        self._inward = inward

    async def list_events(self, request: web.Request) -> web.Response:
        """Return events of all of the caller's sandboxes or of one: of the newest 1000 of the mesh's events."""
        check_query(request, QUERY)
        offset = natural(request.query.get("offset") or 0, "offset")
        limit = natural(request.query.get("limit") or _PAGE, "limit", _MOST_LISTED)
        wanted = {_KINDS[one] for one in _types(request.query.getall("types", []))} or set(TYPES)
        name = request.match_info.get("id")
        missing, sandbox_id = ApiError(404, f"sandbox '{name}' not found"), mesh_id(name) if name else None
        if name and sandbox_id is None:
            raise missing
        async with self._clients.client(api_key(request)) as mesh:
            found = await mesh.events.list(sandbox_id, limit=_READ)
            if name and not found:
                raise missing
            events = [event for event in found if event.kind in wanted]
            if request.query.get("orderAsc") != "true":
                events.reverse()
            page = events[offset : offset + max(1, limit)]
            infos = await _infos(mesh, page)
        return web.json_response([view(one, infos.get(one.sandbox_id)) for one in page])

    async def add(self, request: web.Request) -> web.Response:
        """Register a webhook for the events from now on."""
        found = await read_fields(request, WEBHOOK)
        key = api_key(request)
        async with self._clients.client(key) as mesh:
            principal = await mesh.whoami()
        if principal.sandbox_id:
            raise ApiError(403, "a key of one sandbox registers no webhooks: use a key of its user")
        owner = owner_of(principal)
        if len([hook for hook in self._hooks() if hook.details["owner"] == owner]) >= _MOST_HOOKS:
            raise ApiError(409, f"there are {_MOST_HOOKS} webhooks of this key's owner: delete one")
        if not found.get("signatureSecret"):
            raise ApiError(400, "signatureSecret is missing: requests are signed with it")
        now = write_time(datetime.now(UTC))
        hook = Hook(
            name=str(uuid.uuid4()),
            url="",
            secret="",
            user_id=principal.user_id,
            project=principal.project,
            inward=self._inward,
            form=FORM,
            details={"owner": owner, "created": now, "team": team_of(principal.user_id)},
        )
        hook = _changed(hook, {"enabled": True, **found})
        try:
            await asyncio.to_thread(self._sender.hooks.add, hook, await self._newest())
        except InvalidArgument as error:
            raise ApiError(400, error.message) from None
        self._sender.start()
        return web.json_response(_row(hook), status=201)

    async def list_webhooks(self, request: web.Request) -> web.Response:
        """List the caller's webhooks, without their secrets."""
        owner = await self._owner(request)
        return web.json_response([_row(one) for one in self._hooks() if one.details["owner"] == owner])

    async def get(self, request: web.Request) -> web.Response:
        """Return a webhook."""
        return web.json_response(_row(await self._own(request)))

    async def change(self, request: web.Request) -> web.Response:
        """Change what a request names; one that is enabled again goes on with the events from now on."""
        found = await read_fields(request, WEBHOOK)
        before = await self._own(request)
        hook = _changed(before, found)
        try:
            if hook.enabled and not before.enabled:
                self._sender.hooks.save(hook.name, WebhookProgress(await self._newest()))
            await asyncio.to_thread(self._sender.hooks.replace, hook)
        except InvalidArgument as error:
            raise ApiError(400, error.message) from None
        return web.json_response(_row(hook))

    async def delete(self, request: web.Request) -> web.Response:
        """Remove a webhook; nothing more is sent to it."""
        await asyncio.to_thread(self._sender.hooks.remove, (await self._own(request)).name)
        return web.json_response({})

    def _hooks(self) -> list[Hook]:
        return [self._sender.hooks.get(name) for name in self._sender.hooks.names()]

    async def _owner(self, request: web.Request) -> str:
        async with self._clients.client(api_key(request)) as mesh:
            return owner_of(await mesh.whoami())

    async def _own(self, request: web.Request) -> Hook:
        owner, name = await self._owner(request), request.match_info["id"]
        try:
            hook = self._sender.hooks.get(name)
        except NotFound:
            hook = None
        if hook is None or hook.details["owner"] != owner:
            raise ApiError(404, f"webhook '{name[:100]}' not found")
        return hook

    async def _newest(self) -> str:
        async with self._clients.client(None) as mesh:
            found = await mesh.events.list(limit=1)
        return found[-1].event_id if found else "0-0"


def _changed(hook: Hook, found: Mapping[str, Any]) -> Hook:
    """Return a webhook with what a client wrote of it.

    Raises:
        ApiError: Something does not fit.
    """
    title = text(dict(found), "name", hook.details.get("title", ""))
    secret = text(dict(found), "signatureSecret", hook.secret)
    if len(title) > _LONGEST or len(secret) > _LONGEST or len(text(dict(found), "url")) > _LONGEST:
        raise ApiError(400, f"name, url and signatureSecret have at most {_LONGEST} characters")
    kinds = hook.kinds
    if found.get("events") is not None or not kinds:
        kinds = tuple(sorted({_KINDS[one] for one in _types(found.get("events"))}))
        if not kinds:
            raise ApiError(400, f"events names at least one of {', '.join(_KINDS)}")
    return replace(
        hook,
        url=text(dict(found), "url", hook.url),
        secret=secret,
        kinds=kinds,
        enabled=hook.enabled if found.get("enabled") is None else found["enabled"] is True,
        details={**hook.details, "title": title},
    )


def _types(value: object) -> list[str]:
    names = cast("list[object]", value) if isinstance(value, list) else []
    for name in names:
        if not isinstance(name, str) or name not in _KINDS:
            raise ApiError(400, f"{str(name)[:100]!r} is not a type of events here: they are {', '.join(_KINDS)}")
    return cast("list[str]", names)


def _row(hook: Hook) -> dict[str, Any]:
    details = hook.details
    return {
        "id": hook.name,
        "teamId": details["team"],
        "teamID": details["team"],
        "name": details["title"],
        "createdAt": details["created"],
        "enabled": hook.enabled,
        "url": hook.url,
        "events": [TYPES[kind] for kind in hook.kinds],
    }


async def _infos(mesh: MeshAsync, events: list[SandboxEvent]) -> dict[str, SandboxInfo]:
    """Return the records of the events' sandboxes, as far as there are any."""

    async def find(sandbox_id: str) -> SandboxInfo | None:
        try:
            return await mesh.sandboxes.get(sandbox_id)
        except NotFound:
            return None

    ids = list({one.sandbox_id for one in events})
    found = await asyncio.gather(*map(find, ids))
    return {sandbox_id: info for sandbox_id, info in zip(ids, found, strict=True) if info is not None}
