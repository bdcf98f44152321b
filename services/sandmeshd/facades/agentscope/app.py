"""The door: its routes, and whose request each is."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from aiohttp import web

from sandmesh.errors import SandmeshError
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.agentscope import runtime, workspace
from sandmeshd.facades.agentscope.boxes import BoxHandles
from sandmeshd.facades.agentscope.desktop import Desktops
from sandmeshd.facades.agentscope.methods import Methods
from sandmeshd.facades.agentscope.settings import AgentscopeSettings
from sandmeshd.facades.answers import RequestError, response_of
from sandmeshd.facades.bodies import read_object
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.keys import KeyCheck
from sandmeshd.runtime.addresses import is_open

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

NAMES: Final = (
    "cleanup",
    "create_from_pool",
    "create",
    "release",
    "start",
    "stop",
    "get_status",
    "get_info",
    "check_health",
    "list_tools",
    "call_tool",
    "add_mcp_servers",
    "get_session_mapping",
    "list_session_keys",
)


class AgentScopeDoor:
    """Answers AgentScope Runtime's SDK."""

    def __init__(
        self, clients: MeshClients, boxes: BoxHandles, desktops: Desktops, settings: AgentscopeSettings
    ) -> None:
        self._keys = KeyCheck(clients)
        self._require_token = settings.require_token
        self._boxes = boxes
        self._desktops = desktops
        self._methods = Methods(clients, boxes, desktops, settings.idle_seconds)

    def add(self, application: web.Application) -> None:
        """Add the door to an application."""
        routes = application.router
        for name in NAMES:
            handler = _guarded(self._method(name))
            routes.add_post(f"/{name}", handler)
            routes.add_post(f"/{name}_async", handler)
        routes.add_route("*", "/proxy/{identity}/workspace/{path:.*}", _guarded(self._files))
        routes.add_route("*", "/proxy/{identity}/{path:.*}", _guarded(self._runtime))
        routes.add_get("/desktop/{identity}{path:(/.*)?}", _guarded(self._desktops.answer))
        routes.add_get("/health", _health)

    def _method(self, name: str) -> Handler:
        method = getattr(self._methods, name)
        parameters = inspect.signature(method).parameters
        first = [*parameters, ""][1]

        async def answer(request: web.Request) -> web.StreamResponse:
            token = await self._admit(request)
            sent = await _arguments(request, first)
            known = [parameter for parameter in parameters if parameter != "token"]
            unknown = [key for key, value in sent.items() if value and key not in known]
            if unknown:
                raise RequestError(
                    422, f"{name}: {', '.join(unknown)} is not a parameter; there are {', '.join(known)}"
                )
            values = {key: value for key, value in sent.items() if key in known}
            lacking = [
                parameter.name
                for parameter in parameters.values()
                if parameter.default is parameter.empty and parameter.name not in values
            ]
            if lacking != ["token"]:
                raise RequestError(422, f"{name}: {', '.join(lacking[1:])} is missing")
            return web.json_response({"data": await method(token, **values)})

        return answer

    async def _admit(self, request: web.Request) -> str:
        """Return the token of a request, once the mesh has taken it: nothing of a stranger's is parsed."""
        if not self._require_token and not shown_token(request) and not _is_foreign(request):
            return ""
        token = bearer_token(request)
        await self._keys.check(token, "bearer_token=...")
        return token

    async def _files(self, request: web.Request) -> web.StreamResponse:
        box = await self._boxes.box(await self._admit(request), request.match_info["identity"])
        return await workspace.answer(box, request)

    async def _runtime(self, request: web.Request) -> web.StreamResponse:
        return await runtime.answer(self._methods, await self._admit(request), request)


@asynccontextmanager
async def open_door(mesh: MeshAddress, settings: AgentscopeSettings) -> AsyncGenerator[AgentScopeDoor]:
    """Serve AgentScope Runtime's SDK for a mesh until the block ends."""
    clients, boxes = MeshClients(mesh), BoxHandles(mesh.url)
    desktops = Desktops(clients)
    try:
        yield AgentScopeDoor(clients, boxes, desktops, settings)
    finally:
        await desktops.close()
        await boxes.close()
        await clients.close()


def bearer_token(request: web.Request) -> str:
    """Return the token that a request shows.

    Raises:
        RequestError: It shows none.
    """
    token = shown_token(request)
    if not token:
        fix = "give bearer_token=..., a token of `sandmesh token create NAME`"
        raise RequestError(401, f"Authentication required: {fix}")
    return token


def shown_token(request: web.Request) -> str:
    """Return the token that a request shows, empty without one."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _is_foreign(request: web.Request) -> bool:
    """Return whether a request may be another's than a program of this machine: a page's in a browser, by any name."""
    host = request.headers.get("Host", "")
    named = is_open(host if ":" in host.rpartition("]")[2] else f"{host}:80")
    return named or any(
        header in request.headers for header in ("Origin", "Sec-Fetch-Site", "Forwarded", "X-Forwarded-For")
    )


async def _arguments(request: web.Request, first: str) -> dict[str, Any]:
    """Return what a request sends; the package's `_async` methods send what `first` is as `args`.

    Raises:
        RequestError: It does not fit.
    """
    values = await read_object(request)
    if "args" in values:
        values.setdefault(first, values.pop("args"))
    for name, value in values.items():
        _check(name, value)
    return values


_KINDS: Final[dict[str, tuple[type, str]]] = {
    **dict.fromkeys(
        ("identity", "sandbox_type", "tool_name", "tool_type", "session_ctx_id", "mount_dir", "storage_path"),
        (str, "text"),
    ),
    **dict.fromkeys(("arguments", "meta", "server_configs", "environment"), (dict, "an object")),
    "overwrite": (bool, "true or false"),
}


def _check(name: str, value: object) -> None:
    kind, what = _KINDS.get(name, (object, ""))
    if value is not None and not isinstance(value, kind):
        raise RequestError(422, f"{name} is {what}")


async def _health(_: web.Request) -> web.Response:
    return web.json_response({"status": "healthy", "version": "sandmesh"})


def _guarded(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except (RequestError, SandmeshError, OSError) as error:
            if isinstance(error, ConnectionError):
                raise
            return response_of(error)

    return answer
