"""A mesh with its door for SWE-ReX's clients, and requests to it by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from sandmesh.mesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh


@dataclass(frozen=True)
class World:
    """A mesh, and a client of HTTP."""

    mesh: Mesh
    url: str
    http: aiohttp.ClientSession
    tokens: dict[str, str] = field(default_factory=dict[str, str])

    async def token(self, user: str) -> str:
        """Return a user's token."""
        if user not in self.tokens:
            async with MeshAsync(self.mesh.addresses[0]) as client:
                self.tokens[user] = (await client.tokens.create(user)).secret
        return self.tokens[user]

    async def send(
        self, method: str, path: str, token: str | None, request_id: str | None = None, **options: Any
    ) -> tuple[int, Any]:
        """Send a request; return its status and its JSON."""
        headers = {"X-API-Key": token} if token else {}
        headers |= {"X-Request-ID": request_id} if request_id else {}
        async with self.http.request(method, self.url + path, headers=headers, **options) as response:
            body: Any = await response.json() if response.content_type == "application/json" else await response.text()
            return response.status, body

    async def post(
        self, token: str | None, place: str, body: object = None, request_id: str | None = None
    ) -> tuple[int, Any]:
        """Call a method."""
        return await self.send("POST", f"/swerex/{place}", token, request_id, json=body or {})


@asynccontextmanager
async def open_world(**settings: object) -> AsyncGenerator[World]:
    """Run a mesh with the door."""
    async with run_mesh(swerex=True, **settings) as mesh, aiohttp.ClientSession() as http:
        yield World(mesh, mesh.doors["swerex"], http)
