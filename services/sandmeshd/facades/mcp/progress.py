"""Progress of a call, told to a client that asked for it."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from sandmesh import CallEvent, Output, Progress

Notify = Callable[[float, float | None, str | None], Awaitable[None]]
"""Sends a progress, its total and a message."""

# A client is told at most so often; what is printed in between is told together, the last of it. What a tool itself
# reports is told one by one, the latest of them where there are more in between.
PAUSE_SECONDS = 0.1
MOST_REPORTS = 16
LONGEST_TEXT = 4096


class Reporter:
    """Hears a call's events and tells of them: what a tool says of its progress, else bytes and text of its output.

    The number rises with every notification, as the protocol wants.
    """

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._pending = asyncio.Event()
        self._own: deque[Progress] = deque(maxlen=MOST_REPORTS)
        self._bytes = 0
        self._text = ""
        self._last = 0.0

    def receive(self, event: CallEvent) -> None:
        """Take an event."""
        if isinstance(event, Progress):
            self._own.append(event)
        elif isinstance(event, Output):
            self._bytes += len(event.data)
            self._text = (self._text + event.text)[-LONGEST_TEXT:]
        else:
            return
        self._pending.set()

    async def run(self) -> None:
        """Report progress until cancelled."""
        while True:
            await self._pending.wait()
            await self.report()
            await asyncio.sleep(PAUSE_SECONDS)

    async def report(self) -> None:
        """Report what was received since the last report."""
        if not self._pending.is_set():
            return
        self._pending.clear()
        own, text, self._text = list(self._own), self._text, ""
        self._own.clear()
        for each in own:
            await self._notify(self._above(each.progress), each.total, each.message or None)
        if not own:
            await self._notify(self._above(float(self._bytes)), None, text or None)

    def _above(self, value: float) -> float:
        self._last = value if value > self._last else math.nextafter(self._last, math.inf)
        return self._last


@asynccontextmanager
async def progress_reporter(notify: Notify) -> AsyncGenerator[Callable[[CallEvent], None]]:
    """Yield a subscriber to a call's events; what was received last is reported at the end."""
    reporter = Reporter(notify)
    reporting = asyncio.create_task(reporter.run(), name="sandmesh-mcp-progress")
    try:
        yield reporter.receive
    finally:
        reporting.cancel()
        await asyncio.wait([reporting])
    await reporter.report()
