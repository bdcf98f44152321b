"""The subscribers of a driver's egress refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, contextmanager
from typing import TypeVar

from sandmesh.api.driver.v1 import driver_pb2 as pb

T = TypeVar("T")

_MOST = 1024


class RefusalQueue:
    """Refusals that one subscriber has not received yet: repeated ones are counted, and of too many the oldest go."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[str, str, int, str], pb.EgressRefusal] = {}
        self._any = asyncio.Event()

    def add(self, refusal: pb.EgressRefusal) -> None:
        """Note a refusal."""
        key = (refusal.sandbox_id, refusal.host, refusal.port, refusal.reason)
        known = self._refusals.get(key)
        if known is not None:
            known.count += refusal.count
            known.last_time.CopyFrom(refusal.last_time)
            return
        if len(self._refusals) >= _MOST:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[key] = pb.EgressRefusal()
        self._refusals[key].CopyFrom(refusal)
        self._any.set()

    async def follow(self) -> AsyncGenerator[pb.WatchSandboxesResponse]:
        """Yield each refusal as a driver sends it."""
        while True:
            await self._any.wait()
            while self._refusals:
                refusal = self._refusals.pop(next(iter(self._refusals)))
                yield pb.WatchSandboxesResponse(egress_refusal=refusal)
            self._any.clear()


class Subscribers:
    """Everybody who watches a driver."""

    def __init__(self) -> None:
        self._all: set[RefusalQueue] = set()

    def publish(self, refusal: pb.EgressRefusal) -> None:
        """Publish a refusal to all subscribers."""
        for queue in self._all:
            queue.add(refusal)

    @contextmanager
    def subscribed(self) -> Generator[RefusalQueue]:
        """Subscribe to the refusals from now on."""
        queue = RefusalQueue()
        self._all.add(queue)
        try:
            yield queue
        finally:
            self._all.discard(queue)


async def merged(first: AsyncIterator[T], second: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yield the items of both, as they come, until the first ends."""
    async with aclosing(second):
        waiting = {asyncio.ensure_future(anext(first)): first, asyncio.ensure_future(anext(second)): second}
        try:
            while True:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    source = waiting.pop(task)
                    try:
                        item = task.result()
                    except StopAsyncIteration:
                        return
                    yield item
                    waiting[asyncio.ensure_future(anext(source))] = source
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            if isinstance(first, AsyncGenerator):
                await first.aclose()
