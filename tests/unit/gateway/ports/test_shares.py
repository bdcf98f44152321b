"""Slots that owners share."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from sandmeshd.gateway.ports.shares import NoSlot, Shares


async def test_one_owner_gets_a_quarter_and_leaves_the_rest_to_others() -> None:
    shares = Shares(40, wait_seconds=0.01)
    async with AsyncExitStack() as held:
        for _ in range(10):
            await held.enter_async_context(shares.slot("greedy"))
        with pytest.raises(NoSlot, match="owner's 10 connections"):
            await held.enter_async_context(shares.slot("greedy"))
        for owner in ("ada", "bob", "eve"):
            for _ in range(10):
                await held.enter_async_context(shares.slot(owner))
        with pytest.raises(NoSlot, match="all 40") as refused:
            await held.enter_async_context(shares.slot("late"))
        assert refused.value.retry_after >= 1
    async with shares.slot("late"):
        pass


async def test_a_free_slot_goes_to_the_owner_with_the_fewest() -> None:
    shares = Shares(4, wait_seconds=30.0)
    order: list[str] = []

    async def use(owner: str) -> None:
        async with shares.slot(owner):
            order.append(owner)

    async with AsyncExitStack() as held, asyncio.timeout(20), asyncio.TaskGroup() as group:
        others = AsyncExitStack()
        for owner in ("ada", "bob", "eve"):
            await held.enter_async_context(shares.slot(owner))
        await others.enter_async_context(shares.slot("joe"))
        tasks = [group.create_task(use(owner)) for owner in ("ada", "late")]
        await asyncio.sleep(0)
        await others.aclose()
        await tasks[1]
        assert order == ["late"]
        await held.aclose()


async def test_the_waits_of_an_owner_are_bounded_in_number_and_those_that_end_leave_nothing() -> None:
    shares = Shares(8, wait_seconds=30.0)
    async with AsyncExitStack() as held, asyncio.timeout(20):
        for _ in range(2):
            await held.enter_async_context(shares.slot("ada"))
        waiting = [asyncio.ensure_future(held.enter_async_context(shares.slot("ada"))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(NoSlot):
            await held.enter_async_context(shares.slot("ada"))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    async with shares.slot("ada"), shares.slot("ada"):
        pass
