"""The deletion of everything when a mesh ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import TooLarge
from sandmeshd.allocator import AllocatorSettings, open_allocator
from sandmeshd.mesh import shutdown
from sandmeshd.mesh.shutdown import Ending, undeleted_sandboxes
from tests.unit.allocator.conftest import FAST, Mesh
from tests.unit.allocator.process_driver import ProcessDriver

BOUND_SECONDS = 1.5


class SlowDriver(ProcessDriver):
    """A driver whose deletions take a part of the bound each, or for ever."""

    stuck = False

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox after a while."""
        await asyncio.sleep(3600 if self.stuck else BOUND_SECONDS / 3)
        return await super().delete_sandbox(request)


async def test_a_mesh_that_ends_goes_on_deleting_as_long_as_deletions_end(mesh: Mesh) -> None:
    driver, seen = SlowDriver(mesh.runtime), list[int]()
    async with mesh.over({"process": driver}) as allocator:
        for number in range(6):
            await allocator.claim(f"s{number}")
    settings = AllocatorSettings(delete_concurrency=1, **FAST)  # type: ignore[arg-type]
    async with open_allocator(settings, mesh.store, {"process": driver}) as servicer:
        assert await servicer.evacuation.run(BOUND_SECONDS, seen.append) == 6
    assert seen[0] == 6
    assert seen == sorted(set(seen), reverse=True)
    assert not mesh.runtime.sandboxes


async def test_a_mesh_that_ends_gives_up_when_no_deletion_ends(mesh: Mesh) -> None:
    driver = SlowDriver(mesh.runtime)
    async with mesh.over({"process": driver}) as allocator:
        await allocator.claim("one")
    driver.stuck = True
    async with open_allocator(AllocatorSettings(**FAST), mesh.store, {"process": driver}) as servicer:  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            await servicer.evacuation.run(BOUND_SECONDS)


async def test_a_mesh_whose_task_was_cancelled_waits_for_deletions(mesh: Mesh, tmp_path: Path) -> None:
    driver, ending = (
        SlowDriver(mesh.runtime),
        Ending(keep=False, left=tmp_path / "left", undeleted=tmp_path / "undeleted"),
    )
    async with mesh.over({"process": driver}) as allocator:
        await allocator.claim("one")
    async with open_allocator(AllocatorSettings(**FAST), mesh.store, {"process": driver}) as servicer:  # type: ignore[arg-type]

        async def serve() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await ending.run(servicer.evacuation)

        task = asyncio.create_task(serve())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert not mesh.runtime.sandboxes


class FullDriver(ProcessDriver):
    """A driver that cannot save what its sandboxes wrote until there is room for it."""

    room = False

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox, or refuse to."""
        if not self.room:
            raise TooLarge("the workspace is larger than what is saved; raise SANDMESH_STORAGE_LIMIT to save it", {})
        return await super().delete_sandbox(request)


async def test_a_mesh_that_could_not_delete_says_why_until_it_could(
    mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "SECONDS", 2.0)
    why = tmp_path / "undeleted"
    driver, ending = FullDriver(mesh.runtime), Ending(keep=False, left=tmp_path / "left", undeleted=why)
    async with mesh.over({"process": driver}) as allocator:
        claimed = await allocator.claim("one")
    async with open_allocator(AllocatorSettings(**FAST), mesh.store, {"process": driver}) as servicer:  # type: ignore[arg-type]
        await ending.run(servicer.evacuation)
        [(sandbox_id, reason)] = undeleted_sandboxes(why).items()
        assert sandbox_id == claimed.sandbox.sandbox_id
        assert "raise SANDMESH_STORAGE_LIMIT" in reason
        driver.room = True
        await ending.run(servicer.evacuation)
    assert undeleted_sandboxes(why) == {}
    assert not mesh.runtime.sandboxes
