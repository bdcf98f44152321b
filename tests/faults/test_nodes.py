"""A whole node that stops at once, and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import SandmeshError
from tests.faults.doctor import wait_for_finding, wait_until_well
from tests.faults.leftovers import wait_until_clean
from tests.faults.world import Shape, World, open_world


async def opened(world: World, count: int) -> list[BaseSandboxAsync]:
    return [await BaseSandboxAsync(base_url=world.addresses(), timeout=30).start() for _ in range(count)]


async def nodes_of(boxes: list[BaseSandboxAsync]) -> list[str]:
    return [str((await box.get_info())["node_id"]) for box in boxes]


async def until_lost(box: BaseSandboxAsync) -> str:
    async with asyncio.timeout(90):
        while True:
            info = await box.get_info()
            if str(info["state"]).endswith("LOST"):
                return str(info["state_reason"])
            await asyncio.sleep(0.2)


@pytest.mark.timeout(240)
async def test_a_node_that_stops_loses_its_own_sandboxes_and_another_takes_the_claims(tmp_path: Path) -> None:
    # Short enough that its silence ends them, before it comes back.
    grace = {"SANDMESH_NODE_GRACE_SECONDS": "5"}
    async with open_world(tmp_path, shape=Shape(nodes=2), environment=grace) as world:
        boxes = await opened(world, 4)
        places = await nodes_of(boxes)
        assert set(places) == {"node-1", "node-2"}
        await world.stop_node(1)
        fresh = await opened(world, 2)
        assert set(await nodes_of(fresh)) == {"node-2"}
        finding = await wait_for_finding(world, lambda one: one.name == "node node-1" and "does not answer" in one.seen)
        assert "its driver" in finding.fix
        for box, place in zip(boxes, places, strict=True):
            if place == "node-1":
                assert "node-1" in await until_lost(box)
                with pytest.raises(SandmeshError):
                    await box.run_ipython_cell("1")
            else:
                assert (await box.run_ipython_cell("print(1)")).stdout == "1\n"
        await world.programs["driver1"].start()
        world.add("another", "driver", world.runtime.name, "--node-id", "node-1")
        with pytest.raises(RuntimeError, match="another driver of this node holds"):
            await world.programs["another"].start()
        await wait_until_well(world)
        for box in [*boxes, *fresh]:
            await box.close()
        assert not await wait_until_clean(world, idle=20)
        back = await opened(world, 2)
        assert set(await nodes_of(back)) == {"node-1", "node-2"}
        for box in back:
            await box.close()
