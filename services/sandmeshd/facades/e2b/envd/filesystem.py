"""The service `filesystem.Filesystem`: directories and watches."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
from contextlib import aclosing
from typing import Any, Final

from aiohttp import web

from sandmeshd.facades.e2b.envd import connect, disk
from sandmeshd.facades.e2b.envd.entries import entries_of, read_entry
from sandmeshd.facades.e2b.envd.ownership import give
from sandmeshd.facades.e2b.envd.paths import HOME, in_workspace, inside
from sandmeshd.facades.e2b.envd.watchers import ChangeCollector, DirectoryChanges, exists, noticed
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import Guest
from sandmeshd.facades.e2b.keepalives import with_pauses
from sandmeshd.facades.e2b.requests import natural, text

_MOST_WATCHERS: Final = 64
_DEEPEST: Final = 200


async def stat(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Return a path's entry."""
    return {"entry": await read_entry(guest.box, _path(found))}


async def make_directory(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Make a directory that there is not yet."""
    path = _path(found)
    if await exists(guest, path):
        raise ApiError(409, f"{text(found, 'path')} already exists")
    async with noticed(guest, path):
        await disk.make_directory(guest.box, path)
        await give(guest, path)
    return {"entry": await read_entry(guest.box, path)}


async def move(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Rename a path."""
    source, destination = _path(found, "source"), _path(found, "destination")
    await disk.stat(guest.box, source, follow=False)
    async with noticed(guest, source), noticed(guest, destination):
        await disk.move(guest.box, source, destination)
    return {"entry": await read_entry(guest.box, destination)}


async def list_directory(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """List a directory; depth 0 is 1."""
    path = _path(found)
    depth = natural(found.get("depth", 1), "depth", _DEEPEST) or 1
    info = await disk.stat(guest.box, path, follow=True)
    if info.type != "directory":
        raise ApiError(400, f"path is not a directory: {text(found, 'path')}")
    listed = await disk.entries(guest.box, path, depth)
    return {"entries": await entries_of(guest.box, {posixpath.join(path, entry.path): entry for entry in listed})}


async def remove(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Remove a path with all below it."""
    path = _path(found)
    if await exists(guest, path):
        async with noticed(guest, path):
            await disk.remove(guest.box, path)
    return {}


async def create_watcher(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Collect changes of a directory from now on."""
    if len(guest.watchers) >= _MOST_WATCHERS:
        raise ApiError(429, f"a sandbox has at most {_MOST_WATCHERS} watchers: stop some")
    name = secrets.token_hex(8)
    guest.watchers[name] = ChangeCollector(await _open(guest, found))
    return {"watcherId": name}


async def watcher_events(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Return the changes since the last time."""
    return {"events": _watcher(guest, found).take()}


async def remove_watcher(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """End a watch."""
    watcher = _watcher(guest, found)
    del guest.watchers[text(found, "watcherId")]
    await watcher.close()
    return {}


async def watch(guest: Guest, request: web.Request, found: dict[str, Any]) -> web.StreamResponse:
    """Send the changes of a directory as they come."""
    watched = await _open(guest, found)
    response = connect.ResponseStream(request)
    try:
        async with asyncio.timeout(connect.timeout_seconds(request)):
            await response.open()
            await response.send({"start": {}})
            async with aclosing(watched.events()) as events:
                async for event in with_pauses(events, connect.keepalive_seconds(request)):
                    await response.send({"keepalive": {}} if event is None else {"filesystem": event})
    except TimeoutError:
        return await response.end(ApiError(504, "the watch's time is over"))
    finally:
        await watched.close()
    return await response.end()


async def _open(guest: Guest, found: dict[str, Any]) -> DirectoryChanges:
    path = _path(found)
    if not in_workspace(path):
        raise ApiError(501, f"only directories below {HOME} can be watched, not {text(found, 'path')}")
    info = await disk.stat(guest.box, path, follow=True)
    if info.type != "directory":
        raise ApiError(400, f"path is not a directory: {text(found, 'path')}")
    recursive, entries = found.get("recursive") is True, found.get("includeEntry") is True
    stream = await guest.box.fs.watch(path, recursive=recursive)
    return DirectoryChanges(guest, path, stream, recursive=recursive, entries=entries)


def _watcher(guest: Guest, found: dict[str, Any]) -> ChangeCollector:
    name = text(found, "watcherId")
    if name not in guest.watchers:
        raise ApiError(404, f"watcher with id {name} not found")
    return guest.watchers[name]


def _path(found: dict[str, Any], name: str = "path") -> str:
    return inside(text(found, name))
