"""The replies that SWE-ReX's door keeps for requests that are repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.swerex import replies as kept
from sandmeshd.facades.swerex.places import RuntimePlace
from sandmeshd.facades.swerex.replies import Replies, Reply
from tests.unit.store.waiting import until

MEBIBYTE = 1 << 20


def place(name: str, owner: str = "user ada") -> RuntimePlace:
    return RuntimePlace("key", "base", name, owner)


def replying(size: int, made: list[int]) -> Callable[[], Awaitable[Reply]]:
    async def make() -> Reply:
        made.append(size)
        return 200, b"x" * size

    return make


async def test_a_repeated_request_runs_nothing_twice() -> None:
    replies, made = Replies(), list[int]()
    for _ in range(3):
        assert await replies.reply(place("a"), "r1", replying(5, made)) == (200, b"xxxxx")
    assert made == [5]


async def test_names_are_free_and_their_replies_are_bounded_together() -> None:
    replies, made = Replies(), list[int]()
    for number in range(200):
        await replies.reply(place(f"name-{number}"), "r1", replying(MEBIBYTE, made))
    assert replies.size <= kept.MOST_BYTES // 4
    for owner in range(8):
        for number in range(20):
            await replies.reply(place(f"name-{number}", f"user {owner}"), "r1", replying(MEBIBYTE, made))
    assert replies.size <= kept.MOST_BYTES


async def test_a_request_whose_reply_had_to_go_is_refused_and_not_run_again() -> None:
    replies, made = Replies(), list[int]()
    for number in range(40):
        await replies.reply(place("a"), f"r{number}", replying(MEBIBYTE, made))
    with pytest.raises(RequestError, match="no longer kept"):
        await replies.reply(place("a"), "r0", replying(MEBIBYTE, made))
    assert len(made) == 40


async def test_closing_a_runtime_drops_what_it_replied() -> None:
    replies, made = Replies(), list[int]()
    await replies.reply(place("a"), "r1", replying(MEBIBYTE, made))
    await replies.reply(place("b"), "r1", replying(3, made))
    replies.drop(place("a"))
    assert replies.size == 3
    replies.drop(place("b"))
    assert replies.size == 0


async def test_a_large_reply_is_kept_for_a_clients_retries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "RETRY_SECONDS", 0.01)
    replies, made = Replies(), list[int]()
    await replies.reply(place("a"), "large", replying(MEBIBYTE, made))
    await replies.reply(place("a"), "small", replying(10, made))
    await until(lambda: replies.size == 10)


async def test_requests_under_way_are_bounded_by_owner() -> None:
    replies, made = Replies(), list[int]()
    never = asyncio.Event()

    async def waits() -> Reply:
        await never.wait()
        return 200, b""

    tasks = [asyncio.create_task(replies.reply(place(f"n{number}"), "r", waits)) for number in range(kept.MOST // 4)]
    await asyncio.sleep(0)
    with pytest.raises(RequestError, match="under way"):
        await replies.reply(place("more"), "r", waits)
    assert await replies.reply(place("a", "user eve"), "r", replying(1, made)) == (200, b"x")
    never.set()
    await asyncio.gather(*tasks)
