"""A template that cannot be made ready: its creates are refused, the others work, and it heals by itself."""

from __future__ import annotations

import pytest

from sandmesh.errors import TemplateBuildFailed
from tests.unit.allocator.conftest import Mesh
from tests.unit.store.waiting import until


async def test_a_broken_template_is_refused_at_once_by_name_and_reason_and_the_others_work(mesh: Mesh) -> None:
    mesh.runtime.broken.add("bare")
    async with mesh.allocator(template_retry_seconds=3600) as allocator:
        for _ in range(3):
            with pytest.raises(TemplateBuildFailed, match="template bare cannot be made ready: its image") as caught:
                await allocator.claim("one", template="bare")
            assert caught.value.retry_after is not None
            assert caught.value.facts == {"fix": "look", "template": "bare"}
        assert mesh.runtime.prepare_count == 1
        assert (await allocator.claim("two")).sandbox.sandbox_id
        [trouble] = (await allocator.health()).troubles
    assert (trouble.part, trouble.node_id, trouble.blocks) == ("template", "node-1", False)
    assert trouble.detail.startswith("template bare cannot be made ready, and its sandboxes are refused: its image")
    assert trouble.fix.startswith("look; it is tried again in ")


async def test_a_broken_template_heals_by_itself(mesh: Mesh) -> None:
    mesh.runtime.broken.add("bare")
    async with mesh.allocator(template_retry_seconds=0.01) as allocator:
        with pytest.raises(TemplateBuildFailed):
            await allocator.claim("one", template="bare")
        await until(lambda: mesh.runtime.prepare_count > 3)
        mesh.runtime.broken.clear()
        await until(lambda: "bare" in mesh.runtime.prepared)

        async def is_well() -> bool:
            return not (await allocator.health()).troubles

        await until(is_well)
        assert (await allocator.claim("one", template="bare")).sandbox.sandbox_id


async def test_another_version_of_a_broken_template_is_tried_at_once(mesh: Mesh) -> None:
    mesh.runtime.broken.add("bare")
    async with mesh.allocator(template_retry_seconds=3600, health_seconds=0.01, node_grace_seconds=5) as allocator:
        with pytest.raises(TemplateBuildFailed):
            await allocator.claim("one", template="bare")
        mesh.runtime.broken.clear()
        mesh.runtime.generation = "2"

        async def is_well() -> bool:
            return not (await allocator.health()).troubles

        await until(is_well)
        assert (await allocator.claim("one", template="bare")).sandbox.sandbox_id
