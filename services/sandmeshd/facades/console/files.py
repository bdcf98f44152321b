"""Files of sandboxes: lists, contents and uploads."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from aiohttp import web

from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.console.guard import HEADERS
from sandmeshd.facades.console.records import file_row
from sandmeshd.facades.console.sessions import Session

_MOST_ENTRIES: Final = 2_000


async def list_directory(request: web.Request, session: Session) -> web.Response:
    """Return a directory's entries."""
    async with session.box(request.match_info["id"]) as box:
        found = await box.fs.list(_path(request))
    rows = [file_row(info) for info in found[:_MOST_ENTRIES]]
    return web.json_response({"entries": rows, "left_out": len(found) - len(rows)})


async def read_file(request: web.Request, session: Session) -> web.StreamResponse:
    """Return a file's bytes, for the page to show or for the disk: never as something that a browser runs."""
    path = _path(request)
    async with session.box(request.match_info["id"]) as box, await box.fs.read(path, "stream") as stream:
        name = quote(path.rstrip("/").rpartition("/")[2] or "file", safe="")
        headers = {
            **HEADERS,
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        }
        response = web.StreamResponse(headers=headers)
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        async for chunk in stream:
            await response.write(chunk)
        await response.write_eof()
    return response


async def write_file(request: web.Request, session: Session) -> web.Response:
    """Write a file of the request's bytes, as they arrive; until all have, the previous content stays."""
    async with session.box(request.match_info["id"]) as box:
        info = await box.fs.write(_path(request), request.content.iter_any())
    return web.json_response({"size": info.size})


async def remove(request: web.Request, session: Session) -> web.Response:
    """Remove a file, or a directory with all that is in it."""
    async with session.box(request.match_info["id"]) as box:
        await box.fs.remove(_path(request), recursive=True)
    return web.json_response({})


async def make_directory(request: web.Request, session: Session) -> web.Response:
    """Make a directory."""
    async with session.box(request.match_info["id"]) as box:
        await box.fs.mkdir(_path(request))
    return web.json_response({})


def _path(request: web.Request) -> str:
    path = request.query.get("path", ".") or "."
    if "\0" in path:
        raise RequestError(400, "a path has no zero bytes")
    return path
