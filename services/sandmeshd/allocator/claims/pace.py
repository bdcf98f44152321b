"""The pace at which batches start sandboxes beside the creates of others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

_RECENT_SECONDS: Final = 1.0
"""How long after a create of somebody's the next is expected."""
_WAIT_SECONDS: Final = 0.05
"""The longest that a batch's start waits for the creates of others, however many follow each other."""
_REST: Final = 0.25
"""How long a batch rests after a start, in times of what that took."""


class Pace:
    """Delays the starts of batches while others create sandboxes, whose callers wait for each.

    Then one start of a batch runs at a time, between the creates where it can, and a rest follows it. Each allocator
    paces what it starts.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._others = 0
        self._calm = asyncio.Event()
        self._calm.set()
        self._last = self._rest_end = float("-inf")
        self._one = asyncio.Lock()

    @contextmanager
    def create(self) -> Generator[None]:
        """Count the create of somebody who waits for it, as long as the block runs."""
        self._others += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._others -= 1
            self._last = self._loop.time()
            if not self._others:
                self._calm.set()

    @asynccontextmanager
    async def batch_start(self) -> AsyncGenerator[None]:
        """Enter the block when a batch may start a sandbox, and leave it when that has started."""
        if not self._others and self._loop.time() - self._last > _RECENT_SECONDS:
            yield
            return
        async with self._one:
            await asyncio.sleep(self._rest_end - self._loop.time())
            try:
                async with asyncio.timeout(_WAIT_SECONDS):
                    await self._calm.wait()
            except TimeoutError:
                pass
            began = self._loop.time()
            try:
                yield
            finally:
                ended = self._loop.time()
                self._rest_end = ended + _REST * (ended - began)
