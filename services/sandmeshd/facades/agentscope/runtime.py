"""The routes of a sandbox's own server, below /proxy/ID, beside those of its files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

from aiohttp import web

from sandmeshd.facades.agentscope.methods import Methods
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import read_object

Route: TypeAlias = Callable[[Methods, str, str, dict[str, Any]], Awaitable[Any]]


async def answer(methods: Methods, token: str, request: web.Request) -> web.StreamResponse:
    """Answer a request to a sandbox's own server, in the name of a token.

    Raises:
        RequestError: There is no such route here, or something of the request does not fit.
    """
    identity, path = request.match_info["identity"], request.match_info["path"]
    if (request.method, path) == ("GET", "healthz"):
        await methods.check_health(token, identity)
        return web.Response(text="OK")
    route = _ROUTES.get((request.method, path))
    if route is None:
        known = ", ".join(f"{method} {name}" for method, name in _ROUTES)
        raise RequestError(501, f"{request.method} {path}: of a sandbox's own server there are workspace/ and {known}")
    found = await read_object(request) if request.method == "POST" else {}
    return web.json_response(await route(methods, token, identity, found))


async def _run_cell(methods: Methods, token: str, identity: str, found: dict[str, Any]) -> Any:
    return await methods.call_tool(token, identity, "run_ipython_cell", {"code": _text(found, "code")})


async def _run_command(methods: Methods, token: str, identity: str, found: dict[str, Any]) -> Any:
    return await methods.call_tool(token, identity, "run_shell_command", {"command": _text(found, "command")})


async def _list_tools(methods: Methods, token: str, identity: str, found: dict[str, Any]) -> Any:
    del found
    return await methods.list_tools(token, identity)


async def _call_tool(methods: Methods, token: str, identity: str, found: dict[str, Any]) -> Any:
    return await methods.call_tool(token, identity, _text(found, "tool_name"), _object(found, "arguments"))


async def _add_servers(methods: Methods, token: str, identity: str, found: dict[str, Any]) -> Any:
    configs = _object(found, "server_configs")
    return await methods.add_mcp_servers(token, identity, configs, found.get("overwrite") is True)


_ROUTES: Final[dict[tuple[str, str], Route]] = {
    ("POST", "tools/run_ipython_cell"): _run_cell,
    ("POST", "tools/run_shell_command"): _run_command,
    ("GET", "mcp/list_tools"): _list_tools,
    ("POST", "mcp/call_tool"): _call_tool,
    ("POST", "mcp/add_servers"): _add_servers,
}


def _text(found: dict[str, Any], name: str) -> str:
    value: object = found.get(name)
    if not isinstance(value, str) or not value:
        raise RequestError(422, f"{name} is a text")
    return value


def _object(found: dict[str, Any], name: str) -> dict[str, Any]:
    value: object = found.get(name) or {}
    if not isinstance(value, dict):
        raise RequestError(422, f"{name} is an object")
    return cast("dict[str, Any]", value)
