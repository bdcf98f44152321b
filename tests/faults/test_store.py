"""The store slow, gone, empty, and with another idea of the time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import Recovering, SandmeshError, StoreUnavailable
from tests.faults.leftovers import wait_until_clean
from tests.faults.proxy import stalling
from tests.faults.world import CLOCK, open_world


async def open_box(address: str, seconds: float = 30.0, **options: object) -> BaseSandboxAsync:
    """Open a box, again while the mesh says that it is not ready."""
    async with asyncio.timeout(seconds):
        while True:
            box = BaseSandboxAsync(base_url=address, timeout=10, **options)  # type: ignore[arg-type]
            try:
                return await box.start()
            except (Recovering, StoreUnavailable):
                await asyncio.sleep(0.2)


@pytest.mark.timeout(180)
async def test_a_store_that_comes_back_empty_is_filled_from_the_sandboxes_that_live(tmp_path: Path) -> None:
    async with open_world(tmp_path, count=2) as world:
        boxes = [await open_box(world.addresses(number)) for number in range(3)]
        for number, box in enumerate(boxes):
            await box.run_ipython_cell(f"kept = {number}")
        await world.store.restart(empty=True)
        other = await open_box(world.addresses(), 60.0)
        assert (await other.run_ipython_cell("print('new')")).stdout == "new\n"
        for number, box in enumerate(boxes):
            assert (await box.run_ipython_cell("print(kept)")).stdout == f"{number}\n"
            assert (await box.get_info())["state"].endswith("READY")
        for box in [*boxes, other]:
            await box.close()
        assert not await wait_until_clean(world, idle=10)


@pytest.mark.timeout(180)
async def test_a_store_that_stalls_delays_and_breaks_nothing(tmp_path: Path) -> None:
    proxied = tmp_path / "proxy"
    async with (
        stalling(proxied, tmp_path / "store" / "socket") as stall,
        open_world(tmp_path, environment={"SANDMESH_REDIS_URL": f"unix://{proxied}"}) as world,
    ):
        box = await open_box(world.addresses())
        await box.run_ipython_cell("kept = 1")
        stall.close()
        assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        waiting = asyncio.create_task(open_box(world.addresses(), 60.0))
        # A command's own time-out is five seconds: the stall is felt by whoever asks.
        await asyncio.sleep(7.0)
        assert not waiting.done() or isinstance(waiting.exception(), SandmeshError)
        stall.open()
        other = await waiting
        assert (await other.run_ipython_cell("print(2)")).stdout == "2\n"
        assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        await box.close()
        await other.close()
        assert not await wait_until_clean(world, idle=10)


@pytest.mark.needs("faketime")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("jump", ["-1h", "+30m"])
async def test_a_jump_of_the_stores_clock_ends_no_sandbox_that_is_in_use(tmp_path: Path, jump: str) -> None:
    async with open_world(tmp_path, environment={CLOCK: "+0"}) as world:
        box = await open_box(world.addresses())
        await box.run_ipython_cell("kept = 1")
        world.external.set_clock(jump)
        other = await open_box(world.addresses())
        for opened in (box, other):
            assert (await opened.run_ipython_cell("print(6 * 7)")).stdout == "42\n"
        assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        tokens = [int((await opened.get_info())["lease"]["fencing_token"]) for opened in (box, other)]
        assert tokens[0] < tokens[1]
        await box.close()
        await other.close()
        assert not await wait_until_clean(world, idle=10)
