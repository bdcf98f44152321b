"""`GET` and `POST /files`: the contents of files."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from email.message import Message
from typing import Any

from aiohttp import BodyPartReader, web

from sandmeshd.facades.e2b.access import requested_user
from sandmeshd.facades.e2b.envd import disk
from sandmeshd.facades.e2b.envd.ownership import give
from sandmeshd.facades.e2b.envd.paths import inside, outside
from sandmeshd.facades.e2b.envd.watchers import noticed
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import Guest
from sandmeshd.facades.e2b.requests import body

_CHUNK = 256 << 10
_METADATA = "x-metadata-"
_MOST_METADATA = 3000
"""Bytes: file systems keep a file's attributes in one block."""


async def read_file(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Send a file, in gzip where the client takes only that."""
    path = inside(request.query.get("path", ""))
    info = await disk.stat(guest.box, path, follow=True)
    if info.type != "file":
        raise ApiError(400, f"path '{outside(path)}' is a {info.type}, not a file")
    headers = {"Content-Type": "application/octet-stream", "Cache-Control": "no-store"}
    compressed = request.headers.get("Accept-Encoding", "").strip().lower() == "gzip"
    if compressed:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    response = web.StreamResponse(headers=headers)
    async with aclosing(disk.read(guest.box, path)) as chunks:
        # What cannot be opened is refused before the head is sent.
        first = await anext(chunks, b"")
        await response.prepare(request)
        async for chunk in _compressed(_chained(first, chunks)) if compressed else _chained(first, chunks):
            await response.write(chunk)
    await response.write_eof()
    return response


async def write_files(guest: Guest, request: web.Request) -> web.Response:
    """Write the files of a form, or one whose bytes are the body."""
    values = _metadata(request)
    named, user = request.query.get("path", ""), requested_user(request)
    if request.content_type != "multipart/form-data":
        if not named:
            raise ApiError(400, "path says which file the body is")
        return web.json_response([await _write(guest, (named, user), body(request), values)])
    written: list[dict[str, Any]] = []
    try:
        async for part in await request.multipart():
            if isinstance(part, BodyPartReader) and part.name == "file":
                path = named or _filename(part)
                if not path:
                    raise ApiError(400, "a part named file has the path as its filename")
                written.append(await _write(guest, (path, user), _pieces(part), values))
    except (ValueError, AssertionError) as error:
        raise ApiError(400, f"the form is malformed: {error}") from None
    return web.json_response(written)


def _metadata(request: web.Request) -> dict[str, str]:
    """Return the metadata that a file is to have.

    Raises:
        ApiError: It is too large.
    """
    named = ((name.lower(), value) for name, value in request.headers.items())
    found = {name.removeprefix(_METADATA): value for name, value in named if name.startswith(_METADATA)}
    if sum(len(name) + len(value.encode()) for name, value in found.items()) > _MOST_METADATA:
        raise ApiError(400, f"the metadata of a file has at most {_MOST_METADATA} bytes")
    return found


async def _write(
    guest: Guest, named: tuple[str, str], chunks: AsyncIterable[bytes], metadata: dict[str, str]
) -> dict[str, Any]:
    """Write a file at a path, for a user."""
    path = inside(named[0])
    try:
        async with noticed(guest, path, written=True):
            await disk.write(guest.box, path, chunks)
    except IsADirectoryError:
        raise ApiError(400, f"path is a directory: {outside(path)}") from None
    await give(guest, path, named[1])
    await disk.mark(guest.box, path, metadata)
    written: dict[str, Any] = {"path": outside(path), "name": path.rpartition("/")[2], "type": "file"}
    return written | ({"metadata": metadata} if metadata else {})


def _filename(part: BodyPartReader) -> str:
    # aiohttp takes the first slash off, and clients mean it.
    header = Message()
    header["Content-Disposition"] = part.headers.get("Content-Disposition", "")
    return header.get_filename("")


async def _pieces(part: BodyPartReader) -> AsyncGenerator[bytes]:
    while chunk := await part.read_chunk(_CHUNK):
        yield chunk


async def _chained(first: bytes, rest: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    if first:
        yield first
    async for chunk in rest:
        yield chunk


async def _compressed(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    async for chunk in chunks:
        if data := compressor.compress(chunk):
            yield data
    yield compressor.flush()
