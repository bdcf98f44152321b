"""Every route of every door, with every kind of key: who may not use a sandbox gets nothing that lets anybody."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from .door_scopes import PAGE, POWERLESS, Answer, answers, open_world, page

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

Found = dict[tuple[str, str, str], dict[str, Answer]]

OPEN = {("agentscope", "GET", "/health")}
"""Routes that ask for no key: they say that the door is there."""

READING = {
    *("check_health", "cleanup", "get_info", "get_status", "list_session_keys", "list_tools"),
    *("get_session_mapping",),
}
"""AgentScope's methods, all of which are POST, that read; `cleanup` ends what it may, which is nothing here."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[Found, list[str]]]:
    """Ask every route once."""
    folder: Path = tmp_path_factory.mktemp("doors")
    async with open_world() as world:
        yield await answers(world, folder), world.capabilities


async def test_no_key_that_may_not_use_a_sandbox_is_answered_with_a_token_of_it(
    found: tuple[Found, list[str]],
) -> None:
    rows, _ = found
    names = ("envdAccessToken", "trafficAccessToken", "runtime_token", "X-Access-Token")
    shown = {
        (route, scope, name)
        for route, row in rows.items()
        for scope in POWERLESS
        for name in names
        if f'"{name}": "' in row[scope].text and _is_about_another(route, scope)
    }
    assert shown == set()
    assert any("envdAccessToken" in row["user"].text for row in rows.values())


def _is_about_another(route: tuple[str, str, str], scope: str) -> bool:
    # A user's own new sandbox comes with its tokens.
    return not (scope == "other user" and route[2] in ("/sandboxes", "/v2/sandboxes"))


async def test_keys_that_are_missing_or_revoked_are_refused_by_every_route(found: tuple[Found, list[str]]) -> None:
    rows, _ = found
    passed = {
        (route, scope, row[scope].status)
        for route, row in rows.items()
        for scope in ("no key", "revoked")
        if row[scope].status < 400
    }
    assert {route for route, _, _ in passed} == OPEN


async def test_a_key_that_only_looks_changes_nothing_by_any_route(found: tuple[Found, list[str]]) -> None:
    rows, _ = found
    passed = {
        route
        for route, row in rows.items()
        if route[1] != "GET"
        and row["read-only"].status < 400
        and route[2].strip("/").removesuffix("_async") not in READING
    }
    assert passed == set()


async def test_no_route_fails_by_itself(found: tuple[Found, list[str]]) -> None:
    rows, _ = found
    failed = {(route, scope) for route, row in rows.items() for scope, one in row.items() if one.status == 500}
    assert failed == set()


async def test_the_page_is_what_the_doors_answer(found: tuple[Found, list[str]]) -> None:
    rows, _ = found
    assert PAGE.read_text() == page(rows), "python -m tests.mesh.doors.door_scopes"
