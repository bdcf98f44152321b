"""Routes of volumes and of what is in them."""

from __future__ import annotations

import base64
import binascii
import errno
import posixpath
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from aiohttp import web

from sandmesh import SandboxAsync
from sandmesh.errors import InvalidArgument
from sandmeshd.auth.sealer import Sealer
from sandmeshd.facades.e2b.envd import disk
from sandmeshd.facades.e2b.errors import ApiError, os_error
from sandmeshd.facades.e2b.messages import OWNERS, VOLUME, read_fields
from sandmeshd.facades.e2b.requests import api_key, body, natural, text
from sandmeshd.facades.e2b.volumes.shelf import PLACE, Shelf, act

Content: TypeAlias = Callable[[SandboxAsync, str, web.Request], Awaitable[web.StreamResponse]]

_MODES: Final = 0o7777
_LARGEST_ID: Final = 1 << 31
_DEEPEST: Final = 200


class VolumeRoutes:
    """Answers the requests about volumes: by a key, and those about their contents by their tokens."""

    def __init__(self, shelf: Shelf, secret: str) -> None:
        self._shelf = shelf
        self._sealer = Sealer(secret)

    async def create(self, request: web.Request) -> web.Response:
        """Make a volume."""
        key, found = api_key(request), await read_fields(request, VOLUME)
        name = text(found, "name")
        await self._shelf.create(key, name)
        return web.json_response(self._described(key, name), status=201)

    async def list(self, request: web.Request) -> web.Response:
        """List the caller's volumes."""
        names = await self._shelf.names(api_key(request))
        return web.json_response([{"volumeID": name, "name": name} for name in names])

    async def get(self, request: web.Request) -> web.Response:
        """Return a volume with the token of its contents."""
        key, name = api_key(request), request.match_info["id"]
        await self._shelf.check(key, name)
        return web.json_response(self._described(key, name))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a volume with its contents."""
        key, name = api_key(request), request.match_info["id"]
        await self._shelf.check(key, name)
        await self._shelf.delete(key, name)
        return web.Response(status=204)

    async def content(self, request: web.Request) -> web.StreamResponse:
        """Answer a request about what is in a volume."""
        name = request.match_info["id"]
        key = self._key(request, name)
        route = _CONTENTS.get((request.method, request.match_info["what"]))
        if route is None:
            raise ApiError(404, f"{request.method} {request.path} is not a request about a volume")
        path = posixpath.normpath("/" + request.query.get("path", "/").lstrip("/"))
        if "\0" in path:
            raise ApiError(400, "a path has no zero byte")
        async with self._shelf.open(key, name) as box:
            try:
                return await route(box, path, request)
            except OSError as error:
                if isinstance(error, ConnectionError):
                    raise
                raise _refusal(error, path) from None

    def _described(self, key: str, name: str) -> dict[str, str]:
        token = base64.urlsafe_b64encode(self._sealer.seal(key, _owner(name), ())).decode()
        return {"volumeID": name, "name": name, "token": token}

    def _key(self, request: web.Request, name: str) -> str:
        """Return the key that a volume's token was made for: the token ends with it."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise ApiError(401, "send the volume's token: `Authorization: Bearer ...`")
        try:
            return self._sealer.unseal(base64.urlsafe_b64decode(token.strip()), _owner(name), ())
        except (InvalidArgument, binascii.Error, ValueError):
            raise ApiError(401, "the token is not this volume's") from None


def _owner(name: str) -> str:
    return f"e2b volume {name}"


async def _show(box: SandboxAsync, path: str, request: web.Request) -> web.StreamResponse:
    del request
    return web.json_response(_entry(await act(box, "show", path)))


async def _change(box: SandboxAsync, path: str, request: web.Request) -> web.StreamResponse:
    found = await read_fields(request, OWNERS)
    return web.json_response(_entry(await act(box, "change", path, *_owners(found))))


async def _remove(box: SandboxAsync, path: str, request: web.Request) -> web.StreamResponse:
    del request
    if path == "/":
        raise ApiError(400, "path: the volume itself is deleted by DELETE /volumes/{id}")
    await act(box, "remove", path)
    return web.Response(status=204)


async def _list(box: SandboxAsync, path: str, request: web.Request) -> web.StreamResponse:
    depth = natural(request.query.get("depth", 1), "depth", _DEEPEST) or 1
    return web.json_response([_entry(one) for one in await act(box, "list", path, depth)])


async def _make(box: SandboxAsync, path: str, request: web.Request) -> web.StreamResponse:
    force = request.query.get("force", "").lower() == "true"
    made = await act(box, "make", path, *_owners(dict(request.query)), force)
    return web.json_response(_entry(made), status=201)


async def _read(box: SandboxAsync, path: str, request: web.Request) -> web.StreamResponse:
    found = await act(box, "show", path)
    if found["type"] == "directory":
        raise ApiError(400, f"path '{path}' is a directory, not a file")
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream", "Cache-Control": "no-store"})
    if found["type"] == "file":
        response.content_length = found["size"]
    await response.prepare(request)
    async with aclosing(disk.read(box, PLACE + path)) as chunks:
        async for chunk in chunks:
            await response.write(chunk)
    await response.write_eof()
    return response


async def _write(box: SandboxAsync, path: str, request: web.Request) -> web.StreamResponse:
    owners = _owners(dict(request.query))
    await disk.write(box, PLACE + path, body(request))
    return web.json_response(_entry(await act(box, "change", path, *owners)), status=201)


_CONTENTS: Final[dict[tuple[str, str], Content]] = {
    ("GET", "path"): _show,
    ("PATCH", "path"): _change,
    ("DELETE", "path"): _remove,
    ("GET", "dir"): _list,
    ("POST", "dir"): _make,
    ("GET", "file"): _read,
    ("PUT", "file"): _write,
}


def _owners(found: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Return the uid, gid and mode that a request asks for."""

    def number(name: str, most: int) -> int | None:
        value: object = found.get(name)
        return None if value is None else natural(value, name, most)

    return number("uid", _LARGEST_ID), number("gid", _LARGEST_ID), number("mode", _MODES)


def _entry(found: dict[str, Any]) -> dict[str, Any]:
    times = {name: datetime.fromtimestamp(found[name], UTC).isoformat() for name in ("atime", "mtime", "ctime")}
    return {**found, "name": str(found["path"]).rpartition("/")[2], **times}


def _refusal(error: OSError, path: str) -> ApiError:
    if error.errno == errno.EPERM:
        return ApiError(
            400, f"{path}: files of volumes belong to the sandboxes' only user, uid 1000; leave uid and gid out"
        )
    return os_error(error, path)
