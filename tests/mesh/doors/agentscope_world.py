"""A mesh with its door for AgentScope Runtime's SDK, and requests to it by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
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

    async def token(self, user: str) -> str:
        """Make a user's token."""
        async with MeshAsync(self.mesh.addresses[0]) as client:
            return (await client.tokens.create(user)).secret

    async def send(self, method: str, path: str, token: str | None = None, **options: Any) -> tuple[int, Any]:
        """Send a request; return its status and its JSON."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.http.request(method, self.url + path, headers=headers, **options) as response:
            body: Any = await response.json() if response.content_type == "application/json" else await response.text()
            return response.status, body

    async def call(self, token: str | None, method: str, **arguments: Any) -> tuple[int, Any]:
        """Call a method."""
        return await self.send("POST", f"/{method}", token, json=arguments)


@asynccontextmanager
async def open_world(**settings: object) -> AsyncGenerator[World]:
    """Run a mesh with the door."""
    async with run_mesh(agentscope=True, **settings) as mesh, aiohttp.ClientSession() as http:
        assert "agentscope" in mesh.doors
        yield World(mesh, mesh.doors["agentscope"], http)
