"""A mesh with its door for E2B's clients, and requests to it by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from sandmesh.mesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

HEAD = struct.Struct(">BI")


@dataclass(frozen=True)
class World:
    """A mesh, and a client of HTTP."""

    mesh: Mesh
    url: str
    http: aiohttp.ClientSession

    async def key(self, user: str) -> str:
        """Make a user's key."""
        async with MeshAsync(self.mesh.addresses[0]) as client:
            return (await client.tokens.create(user, form="e2b")).secret

    async def send(
        self, method: str, path: str, headers: dict[str, str] | None = None, **options: Any
    ) -> tuple[int, Any]:
        """Send a request; return its status and its JSON, or its text."""
        async with self.http.request(method, self.url + path, headers=headers, **options) as response:
            body = await response.text()
            return response.status, json.loads(body) if response.content_type == "application/json" else body

    async def create(self, key: str, **values: Any) -> dict[str, Any]:
        """Make a sandbox."""
        status, made = await self.send("POST", "/v2/sandboxes", {"X-API-KEY": key}, json={"timeout": 120, **values})
        assert status == 201, made
        return dict(made)


@asynccontextmanager
async def open_world(**settings: object) -> AsyncGenerator[World]:
    """Run a mesh with the door."""
    async with run_mesh(e2b=True, **settings) as mesh, aiohttp.ClientSession() as http:
        yield World(mesh, mesh.http.addresses[0], http)


def inside(made: dict[str, Any], port: int = 49_983) -> dict[str, str]:
    """Return the headers of requests to a port of a sandbox."""
    headers = {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": str(port)}
    return headers | ({"X-Access-Token": made["envdAccessToken"]} if "envdAccessToken" in made else {})


def envelope(message: dict[str, Any]) -> bytes:
    """Return a message of a stream."""
    data = json.dumps(message).encode()
    return HEAD.pack(0, len(data)) + data


def envelopes(data: bytes) -> list[dict[str, Any]]:
    """Return the messages of a stream; the last is its end."""
    found: list[dict[str, Any]] = []
    while data:
        _, size = HEAD.unpack(data[: HEAD.size])
        found.append(json.loads(data[HEAD.size : HEAD.size + size]))
        data = data[HEAD.size + size :]
    return found


def request_about_ada(method: str, path: str) -> dict[str, Any]:
    """Return what a route's request says that is about ada's sandbox or template."""
    last = path.rpartition("/")[2]
    if path == "/templates/tags":
        return {"target" if method == "POST" else "name": "of-ada", "tags": ["stolen"]}
    if last in ("timeout", "connect", "resume", "fork"):
        return {"timeout": 1}
    named: dict[str, dict[str, Any]] = {
        "refreshes": {"duration": 1},
        "sandboxes": {"timeout": 1, "templateID": "of-ada"},
        "{build}": {"fromTemplate": "of-ada"},
        "snapshots": {"name": "of-ada"},
        "volumes": {"name": "of-ada"},
        "webhooks": {
            "name": "of-ada",
            "url": "https://example.com/",
            "events": ["sandbox.lifecycle.paused"],
            "signatureSecret": "x",
        },
    }
    return named.get(last, {"name": "of-ada"} if path == "/v3/templates" else {})
