"""Tasks that run beside the RPCs and end with the allocator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import structlog

from sandmesh.errors import SandmeshError
from sandmeshd.allocator.rounds import Rounds

log = structlog.get_logger()

T = TypeVar("T")

Step = Callable[[], Awaitable[float | None]]
"""What is done regularly; it may return in how many seconds there is something to do, however long it would rest."""

_RETRY_SECONDS = (0.1, 5.0)
_CANCEL_SECONDS = 1.0


class BackgroundTasks:
    """Own tasks, so that none is lost and all end."""

    def __init__(self, rounds: Rounds | None = None) -> None:
        self.rounds = rounds or Rounds()
        """The pace of what is done regularly."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._endable: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that ends by itself; `finish` waits for it."""
        return self._hold(self._tasks, work)

    def attempt(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that `finish` cancels without waiting, because it cleans up after itself."""
        return self._hold(self._endable, work)

    def forever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Call a step repeatedly, with a backoff after failures, until `finish`."""
        self._hold(self._endable, _repeat(name, step))

    def regularly(self, name: str, seconds: float, step: Step) -> None:
        """Call a step now and in every round of so many seconds, with a backoff after failures, until `finish`."""

        async def step_and_wait() -> None:
            await self.rounds.wait(seconds, await step())

        self.forever(name, step_and_wait)

    def _hold(self, held: set[asyncio.Task[Any]], work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        held.add(task)
        task.add_done_callback(held.discard)
        return task

    async def finish(self, seconds: float) -> None:
        """Cancel loops and attempts, wait for the other tasks for `seconds`, then cancel those too."""
        await _cancel(self._endable)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        await _cancel(self._tasks)


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    # Repeated, since a library may swallow a cancellation that meets it at a bad moment.
    while tasks:
        for task in tasks:
            task.cancel()
        await asyncio.wait(set(tasks), timeout=_CANCEL_SECONDS)


async def _repeat(name: str, step: Callable[[], Awaitable[None]]) -> None:
    delay, longest = _RETRY_SECONDS
    while True:
        try:
            await step()
        except SandmeshError as error:
            log.warning("a background step failed", step=name, error=error.message)
        except Exception:
            log.exception("a background step failed unexpectedly", step=name)
        else:
            delay = _RETRY_SECONDS[0]
            continue
        await asyncio.sleep(delay)
        delay = min(delay * 2, longest)
