"""Retries of changes of the store that must not be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandmesh.errors import Recovering, StoreUnavailable

T = TypeVar("T")

_FIRST_SECONDS, _LONGEST_SECONDS = 0.05, 1.0


async def retry_until_available(step: Callable[[], Awaitable[T]]) -> T:
    """Retry a change while the store does not answer or is being rebuilt: for what nobody else would do.

    Every script may run twice, so that the result of one whose response was lost comes the second time.
    """
    pause = _FIRST_SECONDS
    while True:
        try:
            return await step()
        except (StoreUnavailable, Recovering):
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)
