"""One lock an id, for as long as somebody wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class KeyedLocks:
    """Locks by id; those without a holder or waiter take no memory."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, int] = {}

    @asynccontextmanager
    async def held(self, key: str) -> AsyncGenerator[None]:
        """Hold the lock of an id."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._wanted[key] = self._wanted.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._wanted[key] -= 1
            if self._wanted[key] == 0:
                del self._wanted[key], self._locks[key]
