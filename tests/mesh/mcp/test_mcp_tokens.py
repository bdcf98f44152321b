"""Who may use the MCP adapter over HTTP: tokens of the mesh, names and origins, versions of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.mesh.mcp.mcp_world import connected, delete, named, post, serving, text_of
from tests.mesh.tenants.access_world import World, open_world

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run a mesh that asks for tokens."""
    async with open_world() as opened:
        yield opened


async def test_a_client_is_the_user_whose_token_it_shows_and_others_cannot_use_its_session(world: World) -> None:
    async with serving(world.address, {"require_token": True}, session="work") as url:
        ada, bob = world.secrets["ada"], world.secrets["bob"]
        async with connected(url, ada) as client:
            assert text_of(await client.call_tool("run_ipython_cell", {"code": "mine = 1"})) == ""
        async with connected(url, bob) as client:
            assert "NameError" in text_of(await client.call_tool("run_ipython_cell", {"code": "mine"}))
        async with connected(url, ada) as client:
            assert text_of(await client.call_tool("run_ipython_cell", {"code": "mine"})) == "1"
        session = named(await post(url, shown(ada)))
        assert (await delete(url, {**session, **shown(bob)})).status_code == 404
        assert (await delete(url, {**session, **shown(ada)})).status_code == 200


async def test_a_client_without_a_token_that_is_in_force_is_told_why(world: World) -> None:
    async with serving(world.address, {"require_token": True}) as url:
        for who, said in (
            ("nobody", "send a token"),
            ("a stranger", "is not valid"),
            ("one whose token expired", "has expired"),
            ("one whose token was revoked", "was revoked"),
        ):
            refused = await post(url, shown(world.secrets.get(who, "")))
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Bearer ")
            assert said in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        ({"Host": "rebound.example"}, 421, "--allowed-host"),
        ({"Origin": "https://rebound.example"}, 403, "--allowed-origin"),
        ({"MCP-Protocol-Version": "2099-01-01"}, 400, "has no sessions"),
        ({"MCP-Session-Id": "nobodys"}, 404, "initialize a new one"),
    ],
)
async def test_a_request_that_no_client_of_ours_sends_is_refused(
    headers: dict[str, str], status: int, said: str
) -> None:
    async with serving("unix:///nobody/listens/here") as url:
        refused = await post(url, headers)
        assert refused.status_code == status
        assert said in refused.json()["error"]["message"]


async def test_hosts_and_origins_that_were_allowed_may_come() -> None:
    http: dict[str, Any] = {"allowed_hosts": ["mcp.example"], "allowed_origins": ["https://chat.example"]}
    async with serving("unix:///nobody/listens/here", http) as url:
        taken = await post(url, {"Host": "mcp.example", "Origin": "https://chat.example"})
        assert taken.is_success
        assert '"protocolVersion":"2025-06-18"' in taken.text


def shown(token: str) -> dict[str, str]:
    """Return the header that shows a token."""
    return {"Authorization": f"Bearer {token}"} if token else {}
