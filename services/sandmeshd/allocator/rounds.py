"""When an allocator makes its rounds: at each beat while it is in use, and rarely while it gets no requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sandmeshd.runtime.beat import until_beat

USE_SECONDS: Final = 3.0
"""How long after it was last used it makes all of its rounds."""
REST_SECONDS: Final = 4.0
"""The longest period of its rounds at rest."""
_REST: Final = 4
"""How many times as long as usual a period is at rest, at most."""
_WAKE_SECONDS: Final = 1.0
_TOGETHER: Final = 16
_SPREAD: Final = 0.45
"""The part of a period that turns take: after half of it the next round but one would be waited for."""


class Rounds:
    """The pace of what is done regularly: sweeps, probes, checks of health."""

    def __init__(self) -> None:
        self._used = asyncio.get_running_loop().time()
        self._woken = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None

    def use(self) -> None:
        """Record that it is used: what rests begins with the next beat, so that no request waits for it."""
        loop = asyncio.get_running_loop()
        if self._waking is None and not self._is_used(loop.time()):
            self._waking = loop.call_later(until_beat(_WAKE_SECONDS), self._wake)
        self._used = loop.time()

    def _is_used(self, now: float) -> bool:
        return now - self._used < USE_SECONDS

    def _wake(self) -> None:
        self._waking = None
        self._woken.set()
        self._woken = asyncio.Event()

    def seconds(self, period: float) -> float:
        """Return the seconds to the next round of something that is usually done so often."""
        if not self._is_used(asyncio.get_running_loop().time()):
            period = max(period, min(_REST * period, REST_SECONDS))
        return until_beat(period)

    async def wait(self, period: float, most: float | None = None) -> None:
        """Wait for the next round of something that is usually done so often; at rest for at most `most` seconds."""
        seconds = self.seconds(period)
        if most is not None and most < seconds:
            seconds = max(most, until_beat(period))
        await wait_with_timeout(self._woken, seconds)


def turns(count: int, period: float) -> Sequence[float]:
    """Return after how many seconds of a round each of so many is asked: a few together, so that claims come between.

    A thousand requests that leave in one moment hold up the process that sends them and overrun one that serves many.
    """
    groups = -(-count // _TOGETHER)
    return [_SPREAD * period * (index // _TOGETHER) / groups for index in range(count)]


async def wait_with_timeout(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set or the timeout elapses."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
