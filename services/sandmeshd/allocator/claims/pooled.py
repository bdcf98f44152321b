"""The sandboxes that wait in pools, told to who opens links to their agents ahead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from sandmeshd.allocator.records.ledger import Ledger
from sandmeshd.allocator.records.records import Record

MOST: Final = 256
"""How many may be untold to one who listens, and are read for it when it begins; others are not told at all."""


class Pooled:
    """Tells whoever follows."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._followers: set[asyncio.Queue[Record]] = set()

    def add(self, record: Record) -> None:
        """Tell of a sandbox that is ready and nobody's."""
        for untold in self._followers:
            if untold.qsize() < MOST:
                untold.put_nowait(record)

    async def follow(self) -> AsyncGenerator[Record]:
        """Give what waits, then what is added; a record may be given twice, or when it is somebody's already.

        Raises:
            StoreUnavailable: The store does not say what waits.
        """
        untold: asyncio.Queue[Record] = asyncio.Queue()
        self._followers.add(untold)
        try:
            for record in await self._ledger.pooled(MOST):
                yield record
            while True:
                yield await untold.get()
        finally:
            self._followers.discard(untold)
