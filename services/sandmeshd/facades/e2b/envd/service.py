"""Requests to a sandbox's own API, by path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from aiohttp import web

from sandmesh.errors import SandmeshError
from sandmeshd.facades.e2b import messages
from sandmeshd.facades.e2b.envd import connect, files, filesystem, processes
from sandmeshd.facades.e2b.errors import ApiError, api_error, os_error
from sandmeshd.facades.e2b.guests import Guest, is_away
from sandmeshd.facades.e2b.messages import Message

Unary: TypeAlias = Callable[[Guest, dict[str, Any]], Awaitable[dict[str, Any]]]
Stream: TypeAlias = Callable[[Guest, web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]

_FILES, _PROCESSES = "/filesystem.Filesystem", "/process.Process"
UNARY: Final[dict[str, Unary]] = {
    f"{_FILES}/Stat": filesystem.stat,
    f"{_FILES}/MakeDir": filesystem.make_directory,
    f"{_FILES}/Move": filesystem.move,
    f"{_FILES}/ListDir": filesystem.list_directory,
    f"{_FILES}/Remove": filesystem.remove,
    f"{_FILES}/CreateWatcher": filesystem.create_watcher,
    f"{_FILES}/GetWatcherEvents": filesystem.watcher_events,
    f"{_FILES}/RemoveWatcher": filesystem.remove_watcher,
    f"{_PROCESSES}/List": processes.list_processes,
    f"{_PROCESSES}/SendInput": processes.send_input,
    f"{_PROCESSES}/CloseStdin": processes.close_input,
    f"{_PROCESSES}/SendSignal": processes.send_signal,
    f"{_PROCESSES}/Update": processes.update,
}
STREAMS: Final[dict[str, Stream]] = {
    f"{_FILES}/WatchDir": filesystem.watch,
    f"{_PROCESSES}/Start": processes.start,
    f"{_PROCESSES}/Connect": processes.attach,
}

MESSAGES: Final[dict[str, Message]] = {
    f"{_FILES}/Stat": messages.PATH,
    f"{_FILES}/MakeDir": messages.PATH,
    f"{_FILES}/Move": messages.MOVE,
    f"{_FILES}/ListDir": messages.LIST_DIRECTORY,
    f"{_FILES}/Remove": messages.PATH,
    f"{_FILES}/CreateWatcher": messages.WATCH,
    f"{_FILES}/GetWatcherEvents": messages.WATCHER,
    f"{_FILES}/RemoveWatcher": messages.WATCHER,
    f"{_FILES}/WatchDir": messages.WATCH,
    f"{_PROCESSES}/List": messages.NONE,
    f"{_PROCESSES}/SendInput": messages.SEND_INPUT,
    f"{_PROCESSES}/CloseStdin": messages.SELECTED,
    f"{_PROCESSES}/SendSignal": messages.SIGNAL,
    f"{_PROCESSES}/Update": messages.UPDATE,
    f"{_PROCESSES}/Start": messages.START,
    f"{_PROCESSES}/Connect": messages.SELECTED,
}


async def answer(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Answer a request to a sandbox's files and processes.

    Raises:
        SandmeshError: The sandbox is gone.
    """
    try:
        return await _answer(guest, request)
    except ApiError as error:
        return _refused(request, error)
    except OSError as error:
        if isinstance(error, ConnectionError | SandmeshError):
            raise
        return _refused(request, os_error(error, request.query.get("path", "")))
    except SandmeshError as error:
        if is_away(error):
            raise
        return _refused(request, api_error(error))


async def _answer(guest: Guest, request: web.Request) -> web.StreamResponse:
    path, method = request.path, request.method
    if path == "/files" and method in ("GET", "POST"):
        return await (files.read_file if method == "GET" else files.write_files)(guest, request)
    if method == "POST" and path in UNARY:
        return connect.reply(await UNARY[path](guest, await _read(request)))
    if method == "POST" and path in STREAMS:
        return await STREAMS[path](guest, request, await _read(request))
    if method == "POST" and path == f"{_PROCESSES}/StreamInput":
        return await processes.stream_input(guest, request)
    raise ApiError(501, f"{method} {path}: this is not offered to E2B's clients here")


async def _read(request: web.Request) -> dict[str, Any]:
    found = await connect.read_message(request)
    MESSAGES[request.path].check(found)
    return found


def _refused(request: web.Request, error: ApiError) -> web.StreamResponse:
    if request.path == "/files":
        return error.response()
    return connect.refuse(error)
