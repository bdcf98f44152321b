"""Deletion of every sandbox of a mesh that ends and keeps nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.rounds import wait_with_timeout
from sandmeshd.store import Store

log = structlog.get_logger()

_LOOK_SECONDS = 0.2
_ENDING = ("stopping", "saving")


class Evacuation:
    """End the pools, then every sandbox, and wait until no record is left."""

    def __init__(
        self, store: Store, records: RecordStore, maintenance: MaintenanceStore, filling: BackgroundTasks
    ) -> None:
        self._notifications = store.notifications
        self._records = records
        self._maintenance = maintenance
        self._filling = filling

    async def run(self, seconds: float, progress: Callable[[int], None] = lambda left: None) -> int:
        """Delete every sandbox of the mesh, however long that takes; return how many there were.

        `progress` receives how many are left, first of all and whenever there are fewer.

        Raises:
            TimeoutError: No deletion ended for `seconds`; those that are left go on with the next allocator.
        """
        await self._filling.finish(seconds)
        ended = await self._records.evacuate("the mesh ended")
        loop, least = asyncio.get_running_loop(), None
        # Each completed deletion publishes "pool".
        with self._notifications.subscribe("pool") as woken:
            async with asyncio.timeout(seconds) as bound:
                while left := (await self._records.census()).records:
                    if least is None or left < least:
                        least = left
                        progress(left)
                        bound.reschedule(loop.time() + seconds)
                    await wait_with_timeout(woken, _LOOK_SECONDS)
                    woken.clear()
        log.info("the mesh is empty", ended=ended)
        return ended

    async def troubles(self) -> dict[str, str]:
        """Return why sandboxes could not be deleted yet, by their ids."""
        return {
            due.sandbox_id: due.detail for due in await self._maintenance.survey() if due.kind in _ENDING and due.detail
        }
