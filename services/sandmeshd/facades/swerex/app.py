"""The door: its routes, and whose runtime each request is for."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import BodyPartReader, MultipartReader, web

from sandmesh.errors import NotFound, SandboxLost, SandmeshError
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.answers import RequestError, response_of
from sandmeshd.facades.bodies import Bodies
from sandmeshd.facades.clients import MeshClients, owner_of
from sandmeshd.facades.keys import KeyCheck
from sandmeshd.facades.swerex.errors import GuestError, RuntimeEnded, lost
from sandmeshd.facades.swerex.places import RuntimePlace
from sandmeshd.facades.swerex.replies import Replies, Reply
from sandmeshd.facades.swerex.requests import METHODS, read_request
from sandmeshd.facades.swerex.runtimes import Runtime, Runtimes

PREFIX: Final = "/swerex"
TEMPLATE: Final = "base"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MOST_BODY: Final = 32 << 20
_MOST_UPLOAD: Final = 1 << 30
_PART: Final = 256 << 10
_MOST_PARTS: Final = 16


class SweRexDoor:
    """Answers SWE-ReX's RemoteRuntime."""

    def __init__(self, clients: MeshClients, idle_seconds: float) -> None:
        self._keys = KeyCheck(clients)
        self._runtimes = Runtimes(clients, idle_seconds)
        self._replies = Replies()
        self._bodies = Bodies(_MOST_BODY)

    def add(self, application: web.Application) -> None:
        """Add the door to an application."""
        router = application.router
        for path in ("/", PREFIX + "/{name}/", PREFIX + "/{template}/{name}/"):
            router.add_get(path, self._root)
        for base in ("", PREFIX + "/{name}", PREFIX + "/{template}/{name}"):
            router.add_get(f"{base}/is_alive", self._alive)
            for method in METHODS:
                router.add_post(f"{base}/{method}", self._handled)
            router.add_post(f"{base}/upload", self._handled)
            router.add_post(f"{base}/close", self._handled)

    async def close(self) -> None:
        """Close what is open; the sandboxes stay."""
        await self._runtimes.close()

    async def _root(self, request: web.Request) -> web.Response:
        """Return what SWE-ReX's own server says at its root, by which programs see that one is there."""
        try:
            await self._place(request)
        except (RequestError, SandmeshError) as error:
            return response_of(error)
        return web.json_response({"message": "hello world"})

    async def _alive(self, request: web.Request) -> web.Response:
        try:
            place = await self._place(request)
        except (RequestError, SandmeshError) as error:
            return response_of(error)
        runtime = self._runtimes.found(place)
        if runtime is not None and runtime.lost is not None:
            return web.json_response({"is_alive": False, "message": runtime.lost})
        return web.json_response({"is_alive": True, "message": ""})

    async def _handled(self, request: web.Request) -> web.Response:
        method = request.path.rpartition("/")[2]
        try:
            place = await self._place(request)
            if method == "upload":
                status, body = await self._reply(place, request, method, b"")
            else:
                status, body = await self._once(place, request, method)
        except (RequestError, SandmeshError) as error:
            return response_of(error)
        return web.Response(status=status, body=body, content_type="application/json")

    async def _once(self, place: RuntimePlace, request: web.Request, method: str) -> Reply:
        async with self._bodies.read(request, place.owner) as whole:
            request_id = request.headers.get("X-Request-ID", "")[:200]
            if method == "close":
                # A request that is repeated ends what is there then, which is nothing.
                return await self._reply(place, request, method, whole)
            return await self._replies.reply(place, request_id, lambda: self._reply(place, request, method, whole))

    async def _reply(self, place: RuntimePlace, request: web.Request, method: str, body: bytes) -> Reply:
        try:
            return 200, await self._answer(place, request, method, body)
        except (GuestError, RuntimeEnded) as error:
            response = error.response()
        except (SandboxLost, NotFound) as error:
            if self._runtimes.found(place) is None:
                raise
            response = lost(f"{error.message}; `close` the runtime to start over")
        return response.status, bytes(response.body) if isinstance(response.body, bytes) else b""

    async def _answer(self, place: RuntimePlace, request: web.Request, method: str, body: bytes) -> bytes:
        if method == "close":
            self._replies.drop(place)
            await self._runtimes.end(place)
            return b"{}"
        if method == "upload":
            await self._upload(place, request)
            return b"{}"
        found = read_request(method, body)
        runtime = await self._runtimes.runtime(place)
        return json.dumps(await runtime.ask(method, found)).encode()

    async def _place(self, request: web.Request) -> RuntimePlace:
        key = request.headers.get("X-API-Key", "").strip()
        principal = await self._keys.check(key, "auth_token=...", using=request.method != "GET")
        template, name = request.match_info.get("template", TEMPLATE), request.match_info.get("name", "default")
        for one in (template, name):
            if not _NAME.fullmatch(one):
                raise RequestError(404, f"{one[:100]!r} is not a name: letters, digits and . _ -, at most 100")
        return RuntimePlace(key, template, name, owner_of(principal))

    async def _upload(self, place: RuntimePlace, request: web.Request) -> None:
        runtime, upload = await self._runtimes.runtime(place), uuid.uuid4().hex
        try:
            fields = await _receive(runtime, upload, request)
            await runtime.ask("upload_end", {"upload": upload, **fields})
        except (RequestError, ValueError, ConnectionError, web.HTTPException) as error:
            await runtime.ask("upload_drop", {"upload": upload})
            if isinstance(error, ValueError):
                raise RequestError(400, f"upload: the body is damaged: {error}") from None
            raise


async def _receive(runtime: Runtime, upload: str, request: web.Request) -> dict[str, Any]:
    """Hand what a form has as a file to the sandbox; return its other fields."""
    fields, files = dict[str, str](), 0
    async for part in await _parts(request):
        if not isinstance(part, BodyPartReader):
            raise RequestError(422, "upload: parts are file, target_path and unzip")
        if part.name == "file":
            files += 1
            await _send(runtime, upload, part)
        else:
            fields[part.name or ""] = bytes(await part.read(decode=True)).decode(errors="replace")
        if files + len(fields) > _MOST_PARTS:
            raise RequestError(422, f"upload: at most {_MOST_PARTS} parts")
    if files != 1 or not fields.get("target_path"):
        raise RequestError(422, "upload: send one file, and its target_path")
    unzip = fields.get("unzip", "").lower() in ("true", "1", "on", "yes")
    return {"target_path": fields["target_path"], "unzip": unzip}


async def _send(runtime: Runtime, upload: str, part: BodyPartReader) -> None:
    """Hand a file to the sandbox, a part at a time; an empty one, too."""
    size, data = 0, bytes(await part.read_chunk(_PART))
    while True:
        size += len(data)
        if size > _MOST_UPLOAD:
            raise RequestError(413, f"upload: a file has at most {_MOST_UPLOAD} bytes")
        await runtime.ask("upload_part", {"upload": upload, "data": base64.b64encode(data).decode()})
        data = bytes(await part.read_chunk(_PART))
        if not data:
            return


async def _parts(request: web.Request) -> MultipartReader:
    try:
        return await request.multipart()
    except (AssertionError, ValueError):
        raise RequestError(422, "upload: send multipart/form-data with file, target_path and unzip") from None


@asynccontextmanager
async def open_door(mesh: MeshAddress, idle_seconds: float) -> AsyncGenerator[SweRexDoor]:
    """Serve SWE-ReX's clients for a mesh until the block ends."""
    clients = MeshClients(mesh)
    door = SweRexDoor(clients, idle_seconds)
    try:
        yield door
    finally:
        await door.close()
        await clients.close()
