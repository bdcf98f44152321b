"""What a door's clients share is split by owner."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh.errors import MeshUnavailable
from sandmeshd.facades.shares import Shares


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
