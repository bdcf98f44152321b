"""Takes a step of the store for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandmesh.errors import Recovering, StoreUnavailable

T = TypeVar("T")

_FIRST_SECONDS, _LONGEST_SECONDS = 0.05, 1.0


async def patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Take a step, again while the store does not answer or is being rebuilt: for what nobody else would do.

    Every script may run twice, so that one whose answer was lost is answered the second time.
    """
    pause = _FIRST_SECONDS
    while True:
        try:
            return await step()
        except (StoreUnavailable, Recovering):
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)
