"""The routes of a sandbox's files, below /proxy/ID/workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from aiohttp import BodyPartReader, web

from sandmesh import SandboxAsync
from sandmesh.shared.numbers import decimal
from sandmeshd.facades.agentscope import entries
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import read_object

Route: TypeAlias = Callable[[SandboxAsync, web.Request], Awaitable[web.StreamResponse]]

_CHUNK: Final = 1 << 20
_MOST_TOGETHER: Final = 64 << 20
_MOST_PARTS: Final = 2_000
_DEEPEST: Final = 1 << 31


async def answer(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    """Answer a request about files.

    Raises:
        RequestError: There is no such route, or something of the request does not fit.
        OSError: The sandbox's system refuses it.
    """
    route = _ROUTES.get((request.method, request.match_info["path"]))
    if route is None:
        raise RequestError(404, f"{request.method} {request.path}: this door has no such route")
    return await route(box, request)


async def _read(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    path, kind = _path(request), request.query.get("format", "text")
    if kind == "text":
        return web.Response(text=await entries.read_text(box, path))
    stream = await box.fs.read(path, "stream")
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    await response.prepare(request)
    async for chunk in stream:
        await response.write(chunk)
    await response.write_eof()
    return response


async def _write(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    path = _path(request)
    written = await box.fs.write(path, request.content.iter_chunked(_CHUNK))
    return web.json_response(entries.describe(path, written))


async def _write_many(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    paths: list[str] = []
    contents: list[bytes] = []
    size = 0
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader):
            raise RequestError(400, "parts are paths and files")
        data = bytes(await part.read(decode=True))
        size += len(data)
        if size > _MOST_TOGETHER or len(paths) + len(contents) >= _MOST_PARTS:
            raise RequestError(413, f"at most {_MOST_PARTS} parts of {_MOST_TOGETHER} bytes together: send several")
        if part.name == "paths":
            paths.append(data.decode(errors="replace"))
        elif part.name == "files":
            contents.append(data)
    if len(paths) != len(contents):
        raise RequestError(400, f"there are {len(paths)} paths and {len(contents)} files: send as many of each")
    written = await box.fs.write_many(list(zip(paths, contents, strict=True)))
    found = [entries.describe(path, info) for path, info in zip(paths, written, strict=True)]
    return web.json_response(found)


async def _list(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    depth = decimal(request.query.get("depth", "1"), _DEEPEST)
    if not depth:
        raise RequestError(422, f"depth is a number from 1 to {_DEEPEST}")
    return web.json_response(await entries.list_entries(box, _path(request), depth))


async def _exists(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    return web.json_response({"exists": bool(await box.fs.exists(_path(request)))})


async def _remove(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    await box.fs.remove(_path(request), recursive=True, missing_ok=True)
    return web.Response(status=204)


async def _move(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    found = await _json(request, "source", "destination")
    return web.json_response(await entries.move(box, found["source"], found["destination"]))


async def _make_directory(box: SandboxAsync, request: web.Request) -> web.StreamResponse:
    found = await _json(request, "path")
    return web.json_response({"created": await entries.make_directory(box, found["path"])})


_ROUTES: Final[dict[tuple[str, str], Route]] = {
    ("GET", "file"): _read,
    ("PUT", "file"): _write,
    ("POST", "files:batch"): _write_many,
    ("GET", "list"): _list,
    ("GET", "exists"): _exists,
    ("DELETE", "entry"): _remove,
    ("POST", "move"): _move,
    ("POST", "mkdir"): _make_directory,
}


def _path(request: web.Request) -> str:
    path = request.query.get("path", "")
    if not path:
        raise RequestError(422, "the query has no path")
    return path


async def _json(request: web.Request, *names: str) -> dict[str, str]:
    values = await read_object(request)
    if not all(isinstance(values.get(name), str) for name in names):
        raise RequestError(422, f"the body is an object with {' and '.join(names)}")
    return {name: str(values[name]) for name in names}
