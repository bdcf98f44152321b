"""Refusals on their way to who watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.egress.policy import EgressRefused
from sandmeshd.drivers.egress.reports import Reports
from sandmeshd.drivers.egress.subscribers import RefusalQueue, merged


async def test_two_sources_come_as_one_and_both_are_closed() -> None:
    closed: list[str] = []

    async def source(name: str) -> AsyncGenerator[str]:
        try:
            yield name
            await asyncio.Event().wait()
        finally:
            closed.append(name)

    both = merged(source("a"), source("b"))
    async with asyncio.timeout(10):
        seen = {await anext(both), await anext(both)}
        await both.aclose()
    assert seen == {"a", "b"}
    assert sorted(closed) == ["a", "b"]


async def test_the_end_of_the_first_source_is_the_end() -> None:
    async def first() -> AsyncGenerator[int]:
        yield 1

    async def never() -> AsyncGenerator[int]:
        await asyncio.Event().wait()
        yield 2

    async with asyncio.timeout(10):
        assert [item async for item in merged(first(), never())] == [1]


async def test_a_watcher_that_does_not_listen_costs_little() -> None:
    queue = RefusalQueue()
    for number in range(5000):
        queue.add(pb.EgressRefusal(sandbox_id="a", host=f"h{number}", count=1))
    for _ in range(10):
        queue.add(pb.EgressRefusal(sandbox_id="a", host="h4999", count=1))
    received: list[pb.EgressRefusal] = []
    follow = queue.follow()
    async with asyncio.timeout(10):
        while not received or received[-1].host != "h4999":
            received.append((await anext(follow)).egress_refusal)
    await follow.aclose()
    assert len(received) == 1024
    assert received[-1].count == 11


async def test_a_flood_of_refusals_is_told_in_few() -> None:
    received: list[pb.EgressRefusal] = []
    reports = Reports("sb", received.append)
    for number in range(1000):
        reports.add(EgressRefused(f"h{number}", 80, "no", ""))
    reports.close()
    assert len(received) == 1 + 17
    assert sum(refusal.count for refusal in received) == 1000
    assert (received[0].host, received[-1].host) == ("h0", "")
