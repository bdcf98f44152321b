"""Notifications of unused sandboxes in pools, for those who open links to their agents in advance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.records.records import RecordState

QUEUE_LIMIT: Final = 256
"""How many sandboxes are queued for a subscriber, and read for it at the start; it misses those beyond."""


class PoolSubscribers:
    """Publish sandboxes to subscribers."""

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._queues: set[asyncio.Queue[RecordState]] = set()

    def publish(self, record: RecordState) -> None:
        """Publish a sandbox that is ready and unused."""
        for queue in self._queues:
            if queue.qsize() < QUEUE_LIMIT:
                queue.put_nowait(record)

    async def subscribe(self) -> AsyncGenerator[RecordState]:
        """Yield the unused sandboxes, then those that are added; one may come twice, or when it is claimed already.

        Raises:
            StoreUnavailable: The unused sandboxes cannot be read.
        """
        queue: asyncio.Queue[RecordState] = asyncio.Queue()
        self._queues.add(queue)
        try:
            for record in await self._records.pooled(QUEUE_LIMIT):
                yield record
            while True:
                yield await queue.get()
        finally:
            self._queues.discard(queue)
