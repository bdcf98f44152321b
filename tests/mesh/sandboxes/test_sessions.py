"""Sessions as their users see them: listed, looked at, ended."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh import BaseSandboxAsync, SandboxService, errors
from sandmeshd.mesh import Mesh

pytestmark = pytest.mark.needs("user namespaces")


@pytest.fixture
def mesh(fresh_mesh: Mesh) -> Mesh:
    """Run a mesh for each test, which looks at all that is in it."""
    return fresh_mesh


async def test_sessions_are_listed_to_their_user_and_looked_at_by_name(mesh: Mesh) -> None:
    async with asyncio.timeout(60), SandboxService(mesh.addresses[0], timeout=30) as service:
        (one,) = await service.connect_async("one", "ann")
        both = await service.connect_async("two", "ann", ["base", "filesystem"])
        await service.connect_async("one", "bob")
        listed = {session.session_id: session for session in await service.list_sessions_async("ann")}
        assert {name: dict(session.sandboxes) for name, session in listed.items()} == {
            "one": {"base": one.sandbox_id},
            "two": {"base": both[0].sandbox_id, "filesystem": both[1].sandbox_id},
        }
        assert await service.get_session_async("two", "ann") == listed["two"]
        with pytest.raises(errors.SessionNotFound):
            await service.get_session_async("two", "bob")
        await service.release_all_async()
        assert await service.list_sessions_async("ann") == await service.list_sessions_async("bob") == []


async def test_a_box_says_how_its_sandbox_is_while_it_is_paused_and_after_it_was_released(mesh: Mesh) -> None:
    async with asyncio.timeout(60), SandboxService(mesh.addresses[0], timeout=30) as service:
        (box,) = await service.connect_async("s", "u")
        assert (await box.get_status(), await box.check_health()) == ("ready", True)
        await box.pause()
        assert (await box.get_status(), await box.check_health()) == ("paused", False)
        await box.resume()
        assert await box.check_health()
        await box.pause()
        async with BaseSandboxAsync(box.sandbox_id, base_url=mesh.addresses[0]) as other:
            await service.release_async("s", "u")
            assert await other.get_status() in ("stopping", "gone")
            assert not await other.check_health()
