"""How long a command runs: until its work is done or it is told to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress


async def until(ended: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Run work until it is done, or until `ended` is set, which cancels it and waits for its clean-up."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if not working.done():
            working.cancel()
    with suppress(asyncio.CancelledError):
        await working


@asynccontextmanager
async def told_to_end() -> AsyncGenerator[asyncio.Event]:
    """Give an event that SIGINT and SIGTERM set; a second one ends the process at once, as it would have."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end() -> None:
        ended.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        yield ended
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
