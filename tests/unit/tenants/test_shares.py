"""What tenants share is split by owner."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from sandmesh.errors import MeshUnavailable
from sandmeshd.tenants.shares import Shares, tenant_of


def take_all(shares: Shares, owner: str) -> int:
    for taken in range(shares.most + 1):
        try:
            shares.take(owner)
        except MeshUnavailable:
            return taken
    return shares.most + 1


def test_an_owner_gets_a_quarter_and_leaves_the_rest_to_others() -> None:
    shares = Shares("things", 100)
    assert [take_all(shares, owner) for owner in ("ada", "eve", "bob", "kim", "lea")] == [25, 25, 25, 25, 0]


def test_where_no_tokens_are_asked_for_the_whole_is_everybodys() -> None:
    assert take_all(Shares("things", 100), "") == 100


async def test_who_waits_gets_what_another_gives_back() -> None:
    shares = Shares("things", 4, wait_seconds=30)
    shares.take("ada")
    waiting = asyncio.create_task(shares.acquire("ada"))
    await asyncio.sleep(0)
    assert not waiting.done()
    shares.give("ada")
    await asyncio.wait_for(waiting, 10)
    assert shares.used("ada") == 1


async def test_a_wait_is_bounded_and_leaves_nothing_taken() -> None:
    shares = Shares("things", 4, wait_seconds=0.01)
    shares.take("ada")
    with pytest.raises(MeshUnavailable, match="ada has 1 of at most 1") as raised:
        await shares.acquire("ada")
    assert raised.value.retry_after
    with pytest.raises(MeshUnavailable):
        async with shares.held("eve", 2):
            pass
    assert (shares.used("ada"), shares.used("eve")) == (1, 0)


async def test_a_free_one_goes_to_the_owner_with_the_fewest() -> None:
    shares = Shares("things", 4, wait_seconds=30.0)
    order: list[str] = []

    async def use(owner: str) -> None:
        async with shares.held(owner):
            order.append(owner)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for owner in ("ada", "bob", "eve", "joe"):
            shares.take(owner)
        tasks = [group.create_task(use(owner)) for owner in ("ada", "late")]
        await asyncio.sleep(0)
        shares.give("joe")
        await tasks[1]
        assert order == ["late"]
        shares.give("ada")


async def test_the_waits_of_an_owner_are_bounded_in_number_and_those_that_end_leave_nothing() -> None:
    shares = Shares("things", 8, wait_seconds=30.0)
    async with AsyncExitStack() as held, asyncio.timeout(20):
        for _ in range(2):
            await held.enter_async_context(shares.held("ada"))
        waiting = [asyncio.ensure_future(held.enter_async_context(shares.held("ada"))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(MeshUnavailable):
            await held.enter_async_context(shares.held("ada"))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    async with shares.held("ada"), shares.held("ada"):
        pass


def test_a_sandbox_is_its_users_then_the_administrators_and_in_a_pool_nobodys() -> None:
    assert tenant_of({}) == tenant_of({"user": "ada"}) == ""
    assert tenant_of({"session": "s", "user": "ada", "caller": "bob"}) == "user ada"
    assert tenant_of({"session": "s", "caller": "bob"}) == "user bob"
    assert tenant_of({"session": "s"}) == tenant_of({"session": "s", "user": "anonymous-a"}) == "administrators"
    assert tenant_of({"session": "s", "user": "anonymous-a", "caller": "bob"}) == "user bob"
