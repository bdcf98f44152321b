"""Keys and templates at the doors for other systems' clients, where they are not good, or no longer."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh.mesh import MeshAsync
from tests.mesh.doors.e2b.e2b_world import World, inside, open_world
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh with every door."""
    async with open_world(agentscope=True, swerex=True, sandboxfusion=True) as running:
        yield running


async def statuses(world: World, key: str) -> dict[str, int]:
    """Return what each door answers to a key."""
    bearer = {"Authorization": f"Bearer {key}"}
    code = {"code": "print(1)", "language": "python"}
    answers = {
        "e2b": await world.send("GET", "/v2/sandboxes", {"X-API-KEY": key}),
        "agentscope": await world.send("POST", "/list_session_keys", bearer, json={}),
        "swerex": await world.send("POST", "/swerex/x/execute", {"X-API-Key": key}, json={"command": ["true"]}),
        "sandboxfusion": await world.send("POST", "/run_code", bearer, json=code),
    }
    return {door: status for door, (status, _) in answers.items()}


async def test_a_key_that_is_revoked_or_of_another_mesh_is_401_at_every_door(world: World) -> None:
    async with MeshAsync(world.mesh.addresses[0]) as client:
        made = await client.tokens.create("ann", form="e2b")
        assert set((await statuses(world, made.secret)).values()) == {200}
        box = await world.create(made.secret)
        assert (await world.send("GET", "/files?path=missing", inside(box)))[0] == 404
        volume = (await world.send("POST", "/volumes", {"X-API-KEY": made.secret}, json={"name": "hers"}))[1]
        content = {"Authorization": f"Bearer {volume['token']}"}
        assert await world.send("GET", "/volumecontent/hers/dir?path=/", content) == (200, [])
        await client.tokens.revoke(made.token)

    async def is_refused() -> bool:
        return set((await statuses(world, made.secret)).values()) == {401}

    # The gateway is notified of it, and doors ask again after some seconds.
    await until(is_refused, 20)
    # A sandbox's own token is not the key, and goes on until the sandbox ends; a volume's has the key in it.
    assert (await world.send("GET", "/files?path=missing", inside(box)))[0] == 404
    assert (await world.send("GET", "/volumecontent/hers/dir?path=/", content))[0] == 401
    async with open_world() as other:
        foreign = await other.key("ann")
    assert set((await statuses(world, foreign)).values()) == {401}


async def test_an_unknown_template_is_404_with_those_that_there_are(world: World) -> None:
    key = await world.key("names")
    status, found = await world.send("POST", "/v2/sandboxes", {"X-API-KEY": key}, json={"templateID": "nonsense"})
    assert status == 404
    assert all(name in found["message"] for name in ("nonsense", "base", "code-interpreter-v1", "filesystem"))
    status, found = await world.send(
        "POST", "/swerex/nonsense/x/execute", {"X-API-Key": key}, json={"command": ["true"]}
    )
    assert status == 404
    assert all(name in found["detail"] for name in ("nonsense", "base", "filesystem"))
