"""Retries of what needs the store, or a service before it, while it is away for a moment."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from sandmesh.errors import MeshUnavailable, Recovering, StoreUnavailable

T = TypeVar("T")

CALL_SECONDS: Final = 8.0
"""How long a call waits for a store that does not answer, or is being rebuilt: a server is replaced in less."""

SERVICE_SECONDS: Final = 12.0
"""How long a service waits for another's response: longer than its channel takes to leave one that hangs, which is up
to 7 s, so that the next one has time to answer.
"""

PASSING: Final = (MeshUnavailable, StoreUnavailable, Recovering)
"""The errors after which a step is retried."""
_FIRST_SECONDS, _LONGEST_SECONDS = 0.05, 1.0


async def retry_until_available(step: Callable[[], Awaitable[T]], seconds: float = math.inf) -> T:
    """Retry a step while the store, or the service that asks it, does not answer or recovers, for so many seconds.

    Every script may run twice, so that the result of one whose response was lost comes the second time. Without a
    limit it is for changes that no other process would make.

    Raises:
        MeshUnavailable, StoreUnavailable, Recovering: That is so to the end.
    """
    ends, pause = time.monotonic() + seconds, _FIRST_SECONDS
    while True:
        try:
            return await step()
        except PASSING:
            # Of many that wait, not all come in the same moment when it is back.
            drawn = pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
            if time.monotonic() + drawn > ends:
                raise
            await asyncio.sleep(drawn)
            pause = min(2 * pause, _LONGEST_SECONDS)
