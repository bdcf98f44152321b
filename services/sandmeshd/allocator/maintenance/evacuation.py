"""Deletion of every sandbox of a mesh that ends and keeps nothing."""

from __future__ import annotations

import asyncio

import structlog

from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.rounds import wait_with_timeout
from sandmeshd.store import Store

log = structlog.get_logger()

_LOOK_SECONDS = 0.2


class Evacuation:
    """End the pools, then every sandbox, and wait until no record is left."""

    def __init__(self, store: Store, records: RecordStore, filling: BackgroundTasks) -> None:
        self._notifications = store.notifications
        self._records = records
        self._filling = filling

    async def run(self, seconds: float) -> int:
        """Delete every sandbox of the mesh; return how many there were.

        Raises:
            TimeoutError: Some were still there after `seconds`; their deletion goes on with the next allocator.
        """
        await self._filling.finish(seconds)
        ended = await self._records.evacuate("the mesh ended")
        # Each completed deletion publishes "pool".
        with self._notifications.subscribe("pool") as woken:
            async with asyncio.timeout(seconds):
                while await self._records.page("", {}, "", 1):
                    await wait_with_timeout(woken, _LOOK_SECONDS)
                    woken.clear()
        log.info("the mesh is empty", ended=ended)
        return ended
