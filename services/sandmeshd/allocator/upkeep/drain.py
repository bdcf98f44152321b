"""Empties a mesh that ends and keeps nothing."""

from __future__ import annotations

import asyncio

import structlog

from sandmeshd.allocator.background import Background, wait_briefly
from sandmeshd.allocator.records.ledger import Ledger
from sandmeshd.store import Store

log = structlog.get_logger()

_LOOK_SECONDS = 0.2


class Emptying:
    """Ends the pools, then every sandbox, and waits until no record is left."""

    def __init__(self, store: Store, ledger: Ledger, filling: Background) -> None:
        self._notices = store.notices
        self._ledger = ledger
        self._filling = filling

    async def run(self, seconds: float) -> int:
        """Empty the mesh and give how many sandboxes were ended.

        Raises:
            TimeoutError: Some were still there after `seconds`; their deletion goes on with the next allocator.
        """
        await self._filling.finish(seconds)
        ended = await self._ledger.evacuate("the mesh ended")
        # Each deletion that is done says "pool".
        with self._notices.expect("pool") as woken:
            async with asyncio.timeout(seconds):
                while await self._ledger.page("", {}, "", 1):
                    await wait_briefly(woken, _LOOK_SECONDS)
                    woken.clear()
        log.info("the mesh is empty", ended=ended)
        return ended
