"""What ends at a door with a key that is revoked, and what the audit has of attempts at another's sandbox there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.mesh.doors.door_scopes import World, open_world
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
LONG = "touch /tmp/begun; sleep 300"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run a mesh with all doors."""
    async with open_world() as running:
        yield running


async def post(world: World, path: str, key: str, body: dict[str, Any]) -> tuple[int, Any]:
    headers = {"X-API-KEY": key, "Authorization": f"Bearer {key}"}
    async with world.http.post(world.url + path, headers=headers, json=body) as response:
        is_json = response.content_type == "application/json"
        return response.status, await response.json() if is_json else await response.text()


async def requests_of(world: World, key: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a request of each door that takes minutes, by door, as its own client sends it."""
    _, made = await post(world, "/create", key, {"sandbox_type": "base"})
    called = {"identity": made["data"], "tool_name": "run_shell_command", "arguments": {"command": LONG}}
    return {
        "swerex": ("/swerex/ends/execute", {"command": LONG, "shell": True}),
        "sandboxfusion": ("/run_code", {"code": LONG, "language": "bash", "run_timeout": 300}),
        "agentscope": ("/call_tool", called),
    }


@pytest.mark.parametrize("door", ["swerex", "sandboxfusion", "agentscope"])
async def test_a_request_under_way_ends_when_its_key_is_revoked(world: World, door: str) -> None:
    made = await world.client.tokens.create(f"ends-{door}", user_id=f"ends-{door}", form="e2b")
    path, body = (await requests_of(world, made.secret))[door]
    running = asyncio.create_task(post(world, path, made.secret, body))

    async def begun() -> bool:
        boxes = [
            sandbox
            for sandbox in await world.client.sandboxes.list()
            if sandbox.user_id == f"ends-{door}" and sandbox.in_use
        ]
        return len(boxes) == (2 if door != "agentscope" else 1)

    async with asyncio.timeout(120):
        await until(begun)
        await world.client.tokens.revoke(made.token)
    async with asyncio.timeout(60):
        status, answer = await running
    assert status == 401, answer
    assert "was revoked" in str(answer)


async def test_attempts_at_anothers_sandbox_through_doors_are_in_the_audit(world: World) -> None:
    key, own = world.keys["other user"], world.made["sandboxID"]
    headers = {"X-API-KEY": key}
    for method, path, body in (
        ("GET", f"/sandboxes/{own}", None),
        ("DELETE", f"/sandboxes/{own}", None),
        ("POST", f"/sandboxes/{own}/timeout", {"timeout": 60}),
        ("POST", f"/sandboxes/{own}/connect", {"timeout": 60}),
        ("POST", f"/sandboxes/{own}/pause", None),
    ):
        async with world.http.request(method, world.url + path, headers=headers, json=body) as response:
            assert response.status == 404, path
    called = {"identity": f"sb_{own}", "tool_name": "run_shell_command", "arguments": {"command": "id"}}
    _, refused = await post(world, "/call_tool", key, called)
    assert "uid=" not in str(refused)

    async def recorded() -> bool:
        found = await world.client.audit.list(user_id="eve", limit=1000)
        at = [event for event in found if f"sb_{own}" in event.sandbox_ids and event.outcome == "SANDBOX_NOT_FOUND"]
        return len(at) >= 6

    await until(recorded)
