"""The door: its routes, and whose request each is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, web

from sandmesh.errors import SandmeshError
from sandmesh.mesh import PrincipalInfo
from sandmesh.shared.version import __version__
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.answers import RequestError, response_of
from sandmeshd.facades.bodies import read_object
from sandmeshd.facades.clients import MeshClients, owner_of
from sandmeshd.facades.jupyter.kernel import NotebookKernel
from sandmeshd.facades.jupyter.kernels import NotebookKernels, read_request
from sandmeshd.facades.jupyter.messages import LARGEST, V1, MessageError, read_message
from sandmeshd.facades.jupyter.plugin import JupyterSettings
from sandmeshd.facades.jupyter.sockets import NotebookClient
from sandmeshd.facades.jupyter.specs import DEFAULT, kernel_specs
from sandmeshd.facades.keys import KeyCheck

_HEARTBEAT_SECONDS: Final = 30.0
_MOST_CLIENTS: Final = 64
_MOST_BODY: Final = 1 << 20

Handler = Callable[[web.Request, str, PrincipalInfo], Awaitable[web.StreamResponse]]


class JupyterDoor:
    """Answers Jupyter Server as a gateway of kernels does."""

    def __init__(self, clients: MeshClients, settings: JupyterSettings) -> None:
        self._keys = KeyCheck(clients)
        self._template = settings.template
        self.kernels = NotebookKernels(clients, settings)

    def add(self, application: web.Application) -> None:
        """Add the door to an application."""
        router = application.router
        for method, path, handler in (
            ("GET", "", self._version),
            ("GET", "/kernelspecs", self._specs),
            ("GET", "/kernelspecs/{name}", self._spec),
            ("GET", "/kernels", self._list),
            ("POST", "/kernels", self._create),
            ("GET", "/kernels/{id}", self._show),
            ("DELETE", "/kernels/{id}", self._delete),
            ("POST", "/kernels/{id}/interrupt", self._interrupt),
            ("POST", "/kernels/{id}/restart", self._restart),
            ("GET", "/kernels/{id}/channels", self._channels),
        ):
            router.add_route(method, f"/jupyter/api{path}", self._guarded(handler))

    def _guarded(self, handler: Handler) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                key = _key(request)
                using = request.method != "GET" or request.path.endswith("/channels")
                principal = await self._keys.check(key, "JUPYTER_GATEWAY_AUTH_TOKEN", using=using)
                return await handler(request, key, principal)
            except (RequestError, SandmeshError) as error:
                return response_of(error)

        return answer

    def _found(self, request: web.Request, principal: PrincipalInfo) -> NotebookKernel:
        return self.kernels.get(owner_of(principal), request.match_info["id"])

    async def _version(self, _: web.Request, __: str, ___: PrincipalInfo) -> web.Response:
        return web.json_response({"version": __version__})

    async def _specs(self, _: web.Request, __: str, ___: PrincipalInfo) -> web.Response:
        specs = {name: spec.described() for name, spec in kernel_specs(self._template).items()}
        return web.json_response({"default": DEFAULT, "kernelspecs": specs})

    async def _spec(self, request: web.Request, _: str, __: PrincipalInfo) -> web.Response:
        found = kernel_specs(self._template).get(request.match_info["name"])
        if found is None:
            raise RequestError(404, f"there is no kernel {request.match_info['name'][:100]!r}")
        return web.json_response(found.described())

    async def _list(self, _: web.Request, __: str, principal: PrincipalInfo) -> web.Response:
        return web.json_response([kernel.described() for kernel in self.kernels.of_owner(owner_of(principal))])

    async def _create(self, request: web.Request, key: str, principal: PrincipalInfo) -> web.Response:
        if (request.content_length or 0) > _MOST_BODY:
            raise RequestError(413, f"a request has at most {_MOST_BODY} bytes")
        body = await read_object(request)
        kernel = await self.kernels.create(read_request(body, key, owner_of(principal), self._template))
        location = {"Location": f"/jupyter/api/kernels/{kernel.id}"}
        return web.json_response(kernel.described(), status=201, headers=location)

    async def _show(self, request: web.Request, _: str, principal: PrincipalInfo) -> web.Response:
        return web.json_response(self._found(request, principal).described())

    async def _delete(self, request: web.Request, _: str, principal: PrincipalInfo) -> web.Response:
        await self.kernels.delete(self._found(request, principal))
        return web.Response(status=204)

    async def _interrupt(self, request: web.Request, _: str, principal: PrincipalInfo) -> web.Response:
        await self._found(request, principal).interrupt()
        return web.Response(status=204)

    async def _restart(self, request: web.Request, _: str, principal: PrincipalInfo) -> web.Response:
        kernel = self._found(request, principal)
        await kernel.restart()
        return web.json_response(kernel.described())

    async def _channels(self, request: web.Request, _: str, principal: PrincipalInfo) -> web.StreamResponse:
        """Carry the messages of one client."""
        kernel = self._found(request, principal)
        if len(kernel.clients) >= _MOST_CLIENTS:
            raise RequestError(429, f"the kernel has {_MOST_CLIENTS} clients: close some")
        socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_SECONDS, max_msg_size=LARGEST, protocols=(V1,))
        if not socket.can_prepare(request):
            raise RequestError(400, "channels are a WebSocket")
        await socket.prepare(request)
        client = NotebookClient(socket)
        kernel.clients.add(client)
        try:
            async for message in socket:
                if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                    await kernel.receive(client, read_message(message.data, client.protocol), len(message.data))
        except MessageError as error:
            await client.close(str(error), WSCloseCode.INVALID_TEXT)
        finally:
            kernel.leave(client)
        return socket


@asynccontextmanager
async def open_door(mesh: MeshAddress, settings: JupyterSettings) -> AsyncGenerator[JupyterDoor]:
    """Serve Jupyter Server's gateway protocol for a mesh until the block ends."""
    clients = MeshClients(mesh)
    door = JupyterDoor(clients, settings)
    try:
        yield door
    finally:
        await door.kernels.close()
        await clients.close()


def _key(request: web.Request) -> str:
    """Return the token that a request shows, as Jupyter Server sends it or as a bearer."""
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    return value.strip() if kind.lower() in {"token", "bearer"} else ""
