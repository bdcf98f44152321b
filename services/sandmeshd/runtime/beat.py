"""Beats: what a process does regularly it does at the same moments, so that an idle one wakes once for all of it.

A process that has slept finds little of its memory at hand: waking costs more than most of what it then does.
"""

from __future__ import annotations

import asyncio

_LEAST = 0.5
"""The part of its period that a wait lasts at least."""


def until_beat(seconds: float) -> float:
    """Return the seconds to the next beat of a period: from half of it to one and a half."""
    left = seconds - asyncio.get_running_loop().time() % seconds
    return left if left >= _LEAST * seconds else left + seconds


async def beat(seconds: float) -> None:
    """Sleep until the next beat of a period."""
    await asyncio.sleep(until_beat(seconds))
