"""The store slow, gone, empty, and with another idea of the time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import DeadlineExceeded, Recovering, SandmeshError, StoreUnavailable
from sandmeshd.runtime.retry import CALL_SECONDS
from tests.faults.doctor import Finding, doctor, wait_for_finding, wait_until_well
from tests.faults.leftovers import wait_until_clean
from tests.faults.proxy import stalling
from tests.faults.world import CLOCK, World, open_world


async def open_box(address: str, seconds: float = 30.0, **options: object) -> BaseSandboxAsync:
    """Open a box, again while the mesh says that it is not ready."""
    async with asyncio.timeout(seconds):
        while True:
            box = BaseSandboxAsync(base_url=address, timeout=10, **options)  # type: ignore[arg-type]
            try:
                return await box.start()
            except (Recovering, StoreUnavailable, DeadlineExceeded):
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
        finding = await wait_for_finding(world, lambda one: one.name == "store" and one.health == "problem")
        assert "has not answered for" in finding.seen
        code, printed = await doctor(world)
        assert code == 1
        assert "FAIL store" in printed
        assert not waiting.done() or isinstance(waiting.exception(), SandmeshError)
        stall.open()
        await wait_until_well(world, "store")
        # Slow is another thing than away.
        stall.delay = 0.4
        finding = await wait_for_finding(world, lambda one: one.name == "store" and one.health == "warning")
        assert "slow" in finding.seen
        stall.delay = 0.0
        await wait_until_well(world, "store")
        other = await waiting
        assert (await other.run_ipython_cell("print(2)")).stdout == "2\n"
        assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        await box.close()
        await other.close()
        assert not await wait_until_clean(world, idle=10)


@pytest.mark.timeout(180)
async def test_a_store_that_is_replaced_together_with_gateways_fails_no_call(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, AsyncExitStack() as stack:
        boxes = [await stack.enter_async_context(await open_box(world.addresses())) for _ in range(3)]
        for number, box in enumerate(boxes):
            await box.run_ipython_cell(f"kept = {number}")
        await _replace_gateway_without_store(world)
        calls = [asyncio.create_task(box.run_ipython_cell("print(kept)")) for box in boxes]
        # The new gateway has to ask where the sandboxes are.
        assert not (await asyncio.wait(calls, timeout=0.5))[0]
        await world.external.start()
        assert [(await call).stdout for call in calls] == ["0\n", "1\n", "2\n"]
        await _replace_gateway_without_store(world)
        async with asyncio.timeout(2 * CALL_SECONDS):
            with pytest.raises(StoreUnavailable, match="check that its server runs, then try again"):
                await boxes[0].run_ipython_cell("print(kept)")
        await world.external.start()
        assert (await boxes[0].run_ipython_cell("print(kept)")).stdout == "0\n"


async def _replace_gateway_without_store(world: World) -> None:
    await world.external.kill()
    await world.programs["gateway1"].stop()
    await world.programs["gateway1"].start()


def _says(wanted: str, one: Finding) -> bool:
    return one.name == "clock" and wanted in one.seen


@pytest.mark.needs("faketime")
@pytest.mark.timeout(180)
async def test_a_jump_of_the_stores_clock_is_told_and_ends_no_sandbox_whose_lease_is_longer(tmp_path: Path) -> None:
    # The jumps are of 90 minutes at most; which box is opened before which of them is not known: the clock is cached.
    lease = 4 * 3600.0
    async with open_world(tmp_path, count=1, environment={CLOCK: "+0"}) as world:
        boxes = [await open_box(world.addresses(), ttl=lease)]
        await boxes[0].run_ipython_cell("kept = 1")
        for jump, where in (("-1h", "behind"), ("+30m", "ahead of")):
            world.external.set_clock(jump)
            boxes.append(await open_box(world.addresses(), ttl=lease))
            for box in boxes:
                assert (await box.run_ipython_cell("print(6 * 7)")).stdout == "42\n"
            await wait_for_finding(world, partial(_says, f"{where} this allocator's"))
        assert (await boxes[0].run_ipython_cell("print(kept)")).stdout == "1\n"
        tokens = [int((await box.get_info())["lease"]["fencing_token"]) for box in boxes]
        assert tokens == sorted(set(tokens))
        world.external.set_clock("+0")
        await wait_until_well(world, "clock")
        for box in boxes:
            await box.close()
        assert not await wait_until_clean(world, idle=10)
