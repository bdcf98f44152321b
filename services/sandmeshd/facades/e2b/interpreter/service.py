"""Requests to the code interpreter, by path."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sandmesh.errors import SandmeshError
from sandmeshd.facades.e2b.errors import ApiError, api_error
from sandmeshd.facades.e2b.guests import Guest, is_away
from sandmeshd.facades.e2b.interpreter import contexts, execution
from sandmeshd.facades.e2b.messages import CONTEXT, EXECUTE, Message
from sandmeshd.facades.e2b.requests import LARGEST_BODY, json_object, whole_body


async def answer(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Answer a request to the code interpreter.

    Raises:
        SandmeshError: The sandbox is gone.
    """
    try:
        return await _answer(guest, request)
    except ApiError as error:
        return error.response()
    except SandmeshError as error:
        if is_away(error):
            raise
        return api_error(error).response()


async def _answer(guest: Guest, request: web.Request) -> web.StreamResponse:
    method, path = request.method, request.path.rstrip("/")
    if method == "GET" and path == "/health":
        return web.Response(text="OK")
    if method == "POST" and path == "/execute":
        return await execution.execute(guest, request, await _read(request, EXECUTE))
    if path == "/contexts" and method == "GET":
        return web.json_response(await contexts.list_all(guest))
    if path == "/contexts" and method == "POST":
        found = await _read(request, CONTEXT)
        return web.json_response(await contexts.create(guest, found), status=201)
    if path.startswith("/contexts/"):
        return await _change(guest, method, path.removeprefix("/contexts/"))
    raise ApiError(404, f"{method} {path} is not a request of the code interpreter")


async def _read(request: web.Request, message: Message) -> dict[str, Any]:
    found = json_object(await whole_body(request, LARGEST_BODY))
    message.check(found)
    return found


async def _change(guest: Guest, method: str, rest: str) -> web.Response:
    name, _, act = rest.partition("/")
    if method == "POST" and act == "restart":
        await contexts.restart(guest, name)
    elif method == "DELETE" and not act:
        await contexts.remove(guest, name)
    else:
        raise ApiError(404, f"{method} /contexts/{rest} is not a request of the code interpreter")
    return web.Response(status=204)
