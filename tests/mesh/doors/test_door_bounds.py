"""What one user of a door can take of what all share, and what a key that may only look gets from it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from sandmesh.mesh import MeshAsync
from sandmeshd.facades.e2b.builds.builder import MOST
from sandmeshd.facades.e2b.requests import LARGEST_BODY
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.mcp.mcp_world import ACCEPT, INITIALIZE, serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@dataclass(frozen=True)
class World:
    """A mesh with all doors, the keys of two users and of one that only looks, and a client of HTTP."""

    mesh: Mesh
    url: str
    http: aiohttp.ClientSession
    ada: str
    eve: str
    looking: str

    async def send(self, method: str, path: str, key: str, **options: Any) -> tuple[int, Any]:
        """Send a request with a key as each door takes it; return its status and its JSON."""
        headers = {"X-API-KEY": key, "Authorization": f"Bearer {key}"}
        async with self.http.request(method, self.url + path, headers=headers, **options) as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else await response.text()


@asynccontextmanager
async def _open_world() -> AsyncGenerator[World]:
    async with (
        run_mesh(e2b=True, agentscope=True, swerex=True, sandboxfusion=True, sandboxfusion_template="base") as mesh,
        aiohttp.ClientSession() as http,
        MeshAsync(mesh.addresses[0]) as client,
    ):
        ada, eve = [(await client.tokens.create(name, form="e2b")).secret for name in ("ada", "eve")]
        looking = (await client.tokens.create("looking", scope="read-only", user_id="ada")).secret
        yield World(mesh, mesh.http.addresses[0], http, ada, eve, looking)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with _open_world() as running:
        yield running


async def test_one_users_template_builds_leave_those_of_others_alone(world: World) -> None:
    statuses = [
        (await world.send("POST", "/v3/templates", world.ada, json={"name": f"t{number}"}))[0]
        for number in range(MOST // 4 + 5)
    ]
    assert [statuses.count(202), statuses.count(429)] == [MOST // 4, 5]
    assert (await world.send("POST", "/v3/templates", world.eve, json={"name": "mine"}))[0] == 202


async def test_a_key_that_only_looks_uses_no_door(world: World) -> None:
    for path, body in (
        ("/swerex/a/create_session", {}),
        ("/swerex/a/execute", {"command": "id", "shell": True}),
        ("/swerex/a/close", {}),
        ("/run_code", {"code": "print(1)", "language": "python"}),
        ("/run_jupyter", {"cells": ["1"]}),
        ("/create", {"sandbox_type": "base"}),
    ):
        status, answer = await world.send("POST", path, world.looking, json=body)
        assert status == 403, (path, answer)


async def test_paths_that_cannot_be_written_are_the_clients_fault(world: World) -> None:
    content = base64.b64encode(b"x").decode()
    for name in ("/proc/x/y", "/dev/null/x", "a" * 900):
        body = {"code": "print(1)", "language": "bash", "files": {name: content}}
        status, answer = await world.send("POST", "/run_code", world.ada, json=body)
        assert status == 400, answer
        assert "cannot be written" in answer["detail"]
        assert "Traceback" not in answer["detail"]


@pytest.mark.parametrize("depth", ["²", "9" * 6000, "-1", "0", "٣"])
async def test_a_depth_that_is_not_a_number_is_refused(world: World, depth: str) -> None:
    wanted = {"sandbox_type": "base", "meta": {"session_ctx_id": "d"}}
    _, made = await world.send("POST", "/create", world.ada, json=wanted)
    path = f"/proxy/{made['data']}/workspace/list"
    status, answer = await world.send("GET", path, world.ada, params={"path": ".", "depth": depth})
    assert status == 422, answer


@pytest.mark.parametrize("body", [b"[" * 500_000, b'{"a": ' * 50_000, b"9" * 6000, b'"\\ud800"', b"\xff"])
async def test_bodies_of_any_form_are_not_errors_of_the_server(world: World, body: bytes) -> None:
    for path in ("/create", "/list_tools", "/swerex/a/execute", "/run_code", "/v3/templates", "/v2/sandboxes"):
        status, answer = await world.send("POST", path, world.ada, data=body)
        assert status in (400, 422), (path, status, answer)


async def test_a_key_that_was_revoked_is_refused_by_every_door_from_the_next_request_on(world: World) -> None:
    routes: list[tuple[str, str, dict[str, str] | None]] = [
        ("GET", "/swerex/a/is_alive", None),
        ("POST", "/run_code", {"code": "print(1)", "language": "bash"}),
        ("POST", "/list_session_keys", {}),
        ("GET", "/v2/sandboxes", None),
    ]
    async with MeshAsync(world.mesh.addresses[0]) as client:
        made = await client.tokens.create("ends", form="e2b")
        for method, path, body in routes:
            assert (await world.send(method, path, made.secret, json=body))[0] == 200, path
        await client.tokens.revoke(made.token)
        for method, path, body in routes:
            assert (await world.send(method, path, made.secret, json=body))[0] == 401, path


async def test_one_tokens_mcp_sessions_leave_those_of_others_alone(world: World) -> None:
    http = {"max_sessions": 8, "require_token": True}
    async with serving(world.mesh.addresses[0], http=http) as url:

        async def initialize(token: str) -> tuple[int, str]:
            headers = {**ACCEPT, "Authorization": f"Bearer {token}"}
            async with world.http.post(url, json=INITIALIZE, headers=headers) as response:
                return response.status, response.headers.get("Retry-After", "")

        assert [(await initialize(world.looking))[0] for _ in range(2)] == [200, 200]
        async with asyncio.timeout(60):
            assert await initialize(world.looking) == (503, "5")
        assert (await initialize(world.eve))[0] == 200


async def test_one_users_messages_to_its_sandboxes_leave_room_for_those_of_others(world: World) -> None:
    boxes: dict[str, dict[str, str]] = {}
    for key in (world.ada, world.eve):
        _, made = await world.send("POST", "/sandboxes", key, json={"templateID": "base", "secure": True})
        boxes[key] = {
            "E2b-Sandbox-Id": made["sandboxID"],
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": made["envdAccessToken"],
            "Content-Type": "application/connect+json",
        }

    async def begin(key: str, begun: asyncio.Event) -> tuple[int, str]:
        """Send the head of the largest message, and wait for the answer, which comes if there is no room for it."""

        async def head() -> AsyncGenerator[bytes]:
            yield b"\0" + LARGEST_BODY.to_bytes(4, "big")
            begun.set()
            await asyncio.Event().wait()

        url = f"{world.url}/process.Process/StreamInput"
        async with world.http.post(url, data=head(), headers=boxes[key]) as response:
            return response.status, response.headers.get("Retry-After", "")

    async with asyncio.timeout(120):
        begun = [asyncio.Event() for _ in range(2)]
        held = [asyncio.create_task(begin(world.ada, event)) for event in begun]
        await asyncio.gather(*(event.wait() for event in begun))
        other = asyncio.create_task(begin(world.eve, asyncio.Event()))
        assert await begin(world.ada, asyncio.Event()) == (503, "5")
        assert not any(task.done() for task in (*held, other))
        for task in (*held, other):
            task.cancel()
        await asyncio.wait((*held, other))
