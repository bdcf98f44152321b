"""The door: its routes, and whose request each is."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from sandmesh.errors import SandmeshError
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.answers import RequestError, response_of
from sandmeshd.facades.bodies import Bodies
from sandmeshd.facades.clients import MeshClients, owner_of
from sandmeshd.facades.keys import KeyCheck
from sandmeshd.facades.sandboxfusion.notebooks import run_cells
from sandmeshd.facades.sandboxfusion.programs import SandboxPool
from sandmeshd.facades.sandboxfusion.requests import RunCodeRequest, RunJupyter, read_request

_MOST_BODY: Final = 64 << 20
_DATASETS: Final = ("get_prompts", "get_prompt_by_id", "submit", "get_metrics", "get_metrics_function")


class SandboxFusionDoor:
    """Answers SandboxFusion's clients."""

    def __init__(self, clients: MeshClients, template: str) -> None:
        self._keys = KeyCheck(clients)
        self._bodies = Bodies(_MOST_BODY)
        self._sandboxes = SandboxPool(clients, template)

    def add(self, application: web.Application) -> None:
        """Add the door to an application."""
        router = application.router
        router.add_post("/run_code", self._guarded(self._run_code))
        router.add_post("/run_jupyter", self._guarded(self._run_jupyter))
        router.add_get("/v1/languages", self._guarded(self._languages))
        for name in _DATASETS:
            router.add_post(f"/{name}", self._guarded(self._missing))

    def _guarded(self, handler: Callable[[web.Request, str, bytes], Awaitable[dict[str, Any]]]) -> Any:
        async def answer(request: web.Request) -> web.Response:
            try:
                key = _key(request)
                principal = await self._keys.check(key, "http://x:TOKEN@host:port as the endpoint", using=True)
                async with self._bodies.read(request, owner_of(principal)) as body:
                    return web.json_response(await handler(request, key, body))
            except (RequestError, SandmeshError, OSError) as error:
                if isinstance(error, ConnectionError):
                    raise
                return response_of(error)

        return answer

    async def _run_code(self, _: web.Request, key: str, body: bytes) -> dict[str, Any]:
        done = await self._sandboxes.run(key, read_request(RunCodeRequest, body))
        results = [result for result in (done.get("compile_result"), done.get("run_result")) if result]
        passed = all(result["status"] == "Finished" and result["return_code"] == 0 for result in results)
        return {"status": "Success" if passed else "Failed", "message": "", **done}

    async def _run_jupyter(self, _: web.Request, key: str, body: bytes) -> dict[str, Any]:
        done = await run_cells(self._sandboxes, key, read_request(RunJupyter, body))
        passed = done["driver"]["status"] == "Finished"
        return {"status": "Success" if passed else "Failed", "message": "", **done}

    async def _languages(self, _: web.Request, key: str, __: bytes) -> dict[str, Any]:
        return {"languages": await self._sandboxes.languages(key)}

    async def _missing(self, request: web.Request, _: str, __: bytes) -> dict[str, Any]:
        raise RequestError(501, f"{request.path}: this door runs code, and has no datasets")


@asynccontextmanager
async def open_door(mesh: MeshAddress, template: str) -> AsyncGenerator[SandboxFusionDoor]:
    """Serve SandboxFusion's clients for a mesh until the block ends."""
    clients = MeshClients(mesh)
    try:
        yield SandboxFusionDoor(clients, template)
    finally:
        await clients.close()


def _key(request: web.Request) -> str:
    """Return the token of a request: its bearer token, or the password that its URL has."""
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
