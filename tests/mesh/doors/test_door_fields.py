"""Every field of the requests that other systems' packages publish, sent to the doors: used, refused or documented."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from .door_fields import ABSENT, ANSWERS, BAD, PAGE, PARTS, UNKNOWN, Row, World, open_world, page, rows
from .published_fields import PACKAGES, Types, published

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

NOTHING = {
    ("metadata", "no=thing"),
    ("template", "nothing"),
    ("nextToken", "0"),
    ("sandboxID", "nothing"),
    ("name", "nothing"),
    ("search", "nothing of the kind"),
    ("sandbox_ids", "nothing"),
}
"""Values of texts in queries that no sandbox, snapshot or line has: an answer that uses them is empty."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world() as running:
        yield running


@pytest.fixture(scope="module")
def types() -> dict[str, Types]:
    """Read the types out of the packages."""
    return {door: published(door) for door in PACKAGES}


async def test_every_published_type_of_a_request_is_in_the_table(types: dict[str, Types]) -> None:
    for door, found in types.items():
        requests = {name for name, fields in found.items() if fields and name not in ANSWERS}
        known = rows(door, found).keys() | ABSENT.get(door, {}).keys() | PARTS.keys()
        assert requests - known == set(), door
        for name, row in rows(door, found).items():
            message = row.message
            known_fields = {*message.used, *message.refused, *message.idle}
            # Events of the answers have the names of two that are sent.
            assert name in ("StartEvent", "DataEvent") or {*found.get(name, ())} <= known_fields, name


@pytest.mark.parametrize("door", [*PACKAGES])
async def test_each_field_is_used_refused_or_without_effect_as_the_table_says(
    world: World, types: dict[str, Types], door: str
) -> None:
    wrong: list[str] = []
    for name, row in rows(door, types[door]).items():
        published_fields = [] if name in ("StartEvent", "DataEvent") else types[door].get(name, [])
        fields = published_fields or [*row.message.used]
        found = await asyncio.gather(*(_problem(world, row, field) for field in [*fields, UNKNOWN]))
        wrong += [f"{name}: {one}" for one in found if one]
    assert wrong == []


async def _problem(world: World, row: Row, field: str) -> str:
    """Send one field; return what is wrong with the answer."""
    message = row.message
    if field in message.idle:
        status, text = await row.send(world, {field: True if not row.is_query else "x"})
        return f"{field} is refused: {status} {text}" if field in text else ""
    if field == UNKNOWN and not row.closed:
        return ""
    value: Any = BAD if message.used.get(field) is not dict else "x"
    if row.is_query:
        value = "many"
    if row.is_query and (effect := dict(NOTHING).get(field)) is not None and message.used.get(field) is str:
        return await _without_effect(world, row, field, effect)
    status, text = await row.send(world, {field: value})
    return "" if status in (400, 422) and field in text else f"{field} = {value!r}: {status} {text}"


async def _without_effect(world: World, row: Row, field: str, value: str) -> str:
    status, text = await row.send(world, {field: value})
    answer: Any = json.loads(text)
    return (
        ""
        if status == 200 and answer in ([], {"logs": []}, {"sandboxes": {}})
        else f"{field} = {value!r}: {status} {text}"
    )


async def test_types_whose_routes_are_missing_are_refused(world: World) -> None:
    headers = {"X-API-KEY": world.key, "Authorization": f"Bearer {world.key}"}
    for absent in ABSENT.values():
        for name, (method, path) in absent.items():
            status, text = await world.send(method, path, headers, json={})
            assert (status, path in text) == (501, True), name


async def test_what_is_empty_is_as_not_sent(world: World) -> None:
    values: list[Any] = [None, False, 0, "", {}, []]
    for empty in values:
        status, text = await rows("e2b", {})["ConnectSandboxV2"].send(world, {UNKNOWN: empty})
        assert status == 200, text


async def test_a_sandbox_that_reboots_on_connect_runs_nothing_of_before(world: World) -> None:
    headers, place = {"X-API-KEY": world.key}, f"/sandboxes/{world.ids['sandbox']}"
    start = rows("e2b", {})["StartRequest"].send
    await start(world, {"process": {"cmd": "/bin/sh", "args": ["-c", "sleep 1000 & sleep 0"]}, "tag": "x"})
    counts: list[int] = []
    for memory in (True, False):
        assert (await world.send("POST", f"{place}/pause", headers, json={"requireHealthyGuest": True}))[0] == 204
        assert (await world.send("POST", f"/v2{place}/connect", headers, json={"memory": memory}))[0] == 201
        _, text = await start(world, {"process": {"cmd": "/bin/sh", "args": ["-c", "ps -A | grep -c 'slee[p]'"]}})
        counts.append('"exitCode":0' in text)
    assert counts == [True, False]


async def test_the_page_is_what_the_doors_answer(types: dict[str, Types]) -> None:
    assert PAGE.read_text() == page(types), "run `python -m tests.mesh.doors.door_fields`"
