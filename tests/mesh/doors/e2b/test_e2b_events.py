"""Lifecycle events and their webhooks, as E2B's documentation calls them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.mesh.doors.e2b.e2b_world import World, open_world

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

RECEIVER = Path(__file__).resolve().parents[2] / "webhooks" / "receiver.py"
PREFIX = "sandbox.lifecycle."
SECRET = "secret-for-event-signature-verification"  # noqa: S105 - as in the documentation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run a mesh with the door, whose webhooks may lead to this machine."""
    async with open_world(e2b_webhooks_inward=True) as running:
        yield running


def short(events: list[dict[str, Any]]) -> list[str]:
    return [one["type"].removeprefix(PREFIX) for one in events]


async def live(world: World, key: str) -> str:
    """Create, use and end a sandbox; return its id."""
    headers = {"X-API-KEY": key}
    made = await world.create(key, metadata={"job": "seven"})
    place = f"/sandboxes/{made['sandboxID']}"
    assert (await world.send("POST", f"{place}/timeout", headers, json={"timeout": 600}))[0] == 204
    assert (await world.send("POST", f"{place}/pause", headers))[0] == 204
    assert (await world.send("POST", f"/v2{place}/connect", headers, json={"timeout": 60}))[0] == 201
    assert (await world.send("DELETE", place, headers))[0] == 204
    return str(made["sandboxID"])


async def test_the_events_of_a_life_are_listed_and_sent(world: World, tmp_path: Path) -> None:
    key, stranger = await world.key("ada"), await world.key("eve")
    headers, found = {"X-API-KEY": key}, tmp_path / "requests"
    command = [sys.executable, str(RECEIVER), "0", str(found), "2"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(await process.stdout.readline())}/"
        wanted = {"name": "Mine", "url": url, "enabled": True, "events": [PREFIX + "created", PREFIX + "killed"]}
        status, hook = await world.send("POST", "/events/webhooks", headers, json={**wanted, "signatureSecret": SECRET})
        assert status == 201
        assert {name: hook[name] for name in wanted} == wanted
        assert SECRET not in json.dumps(hook)
        await world.create(stranger)
        name = await live(world, key)
        async with asyncio.timeout(60):
            while not found.exists() or len(found.read_text().splitlines()) < 2:  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(0.1)
    finally:
        process.kill()
        await process.wait()
    requests = [json.loads(line) for line in found.read_text().splitlines()]
    letters = [json.loads(one["body"]) for one in requests]
    assert (short(letters), {one["sandboxId"] for one in letters}) == (["created", "killed"], {name})
    sent = {header.lower(): value for header, value in requests[0]["headers"].items()}
    digest = base64.b64encode(hashlib.sha256((SECRET + requests[0]["body"]).encode()).digest()).decode()
    assert sent["e2b-signature"] == digest.replace("+", "-").replace("/", "_").rstrip("=")
    assert (sent["e2b-webhook-id"], sent["e2b-signature-version"]) == (hook["id"], "v1")
    status, listed = await world.send("GET", f"/events/sandboxes/{name}?orderAsc=true", headers)
    assert (status, short(listed)) == (200, ["created", "updated", "paused", "resumed", "killed"])
    assert {one["id"] for one in letters} == {listed[0]["id"], listed[-1]["id"]}
    query = f"?limit=1&offset=1&types={PREFIX}created&types={PREFIX}killed"
    assert [short(one) for one in (await world.send("GET", f"/events/sandboxes{query}", headers))[1:]] == [["created"]]
    mine = (await world.send("GET", "/events/sandboxes?limit=100", headers))[1]
    assert {one["sandboxId"] for one in mine} == {name}
    assert (await world.send("GET", f"/events/sandboxes/{name}", {"X-API-KEY": stranger}))[0] == 404


async def test_a_running_sandboxs_events_have_its_metadata(world: World) -> None:
    key = await world.key("bob")
    made = await world.create(key, metadata={"job": "eight"})
    status, (event,) = await world.send("GET", f"/events/sandboxes/{made['sandboxID']}", {"X-API-KEY": key})
    assert (status, event["eventData"]) == (200, {"sandbox_metadata": {"job": "eight"}})
    assert (event["sandboxTemplateId"], event["version"]) == (made["templateID"], "v1")


async def test_a_webhook_is_changed_and_deleted_by_its_owner(world: World) -> None:
    key, stranger = {"X-API-KEY": await world.key("kay")}, {"X-API-KEY": await world.key("sam")}
    body = {"name": "a", "url": "https://example.com/", "events": [PREFIX + "paused"], "signatureSecret": SECRET}
    _, hook = await world.send("POST", "/events/webhooks", key, json=body)
    place = f"/events/webhooks/{hook['id']}"
    changes = {"enabled": False, "events": [PREFIX + "killed"], "url": "https://example.com/other"}
    status, changed = await world.send("PATCH", place, key, json=changes)
    assert (status, changed) == (200, {**hook, **changes})
    assert (await world.send("GET", place, key))[1] == changed
    for method in ("GET", "PATCH", "DELETE"):
        assert (await world.send(method, place, stranger, json={"enabled": True}))[0] == 404
    assert (await world.send("GET", "/events/webhooks", stranger))[1] == []
    assert (await world.send("GET", "/events/webhooks", key))[1] == [changed]
    assert (await world.send("DELETE", place, key))[0] == 200
    assert (await world.send("GET", place, key))[0] == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"events": []},
        {"events": ["sandbox.lifecycle.checkpointed"]},
        {"events": [7]},
        {"url": "ftp://a/b"},
        {"url": ""},
        {"signatureSecret": ""},
        {"signatureSecret": 7},
        {"name": "x" * 2001},
        {"enabled": "yes"},
        {"retries": 3},
    ],
)
async def test_a_webhook_that_cannot_be_is_refused(world: World, wrong: dict[str, Any]) -> None:
    body = {"name": "a", "url": "https://example.com/", "events": [PREFIX + "paused"], "signatureSecret": SECRET}
    headers = {"X-API-KEY": await world.key(f"user-{len(json.dumps(wrong))}-{min(wrong)}".lower())}
    assert (await world.send("POST", "/events/webhooks", headers, json={**body, **wrong}))[0] == 400
    assert (await world.send("GET", "/events/webhooks", headers))[1] == []


@pytest.mark.parametrize("query", ["limit=101", "limit=-1", "offset=x", "types=killed", "since=1"])
async def test_a_query_that_cannot_be_is_refused(world: World, query: str) -> None:
    headers = {"X-API-KEY": await world.key(f"asks-{query.partition('=')[0]}-{len(query)}")}
    assert (await world.send("GET", f"/events/sandboxes?{query}", headers))[0] == 400
