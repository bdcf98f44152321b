"""One event loop in one daemon thread, which runs the async code that the sync classes are made of."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

R = TypeVar("R")

THREAD = "sandmesh-portal"

# How long an interrupted caller waits until its remote work was told to end.
CANCEL_SECONDS = 5.0

# How long a wait for a result sleeps at a time. A signal that comes just before a thread falls asleep does not wake it:
# Python's handler has noted it by then and runs when the thread next does.
LOOK_SECONDS = 0.5


class _Job(Generic[R]):
    """One coroutine on its way through the loop; `done` ends only when the task did, a cancelled one too."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, R]) -> None:
        self.done: concurrent.futures.Future[R] = concurrent.futures.Future()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[R] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():
            self.done.set_exception(asyncio.CancelledError())
            return
        error = task.exception()
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


class Portal:
    """Runs coroutines for threads that have no loop, or whose loop is busy waiting for them."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=THREAD, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine to its end and give its result.

        An exception that reaches the waiting thread, as KeyboardInterrupt does, cancels the coroutine first.
        """
        job = _Job(self.loop, work)
        try:
            self.post(job.start)
            while not job.done.done():
                with suppress(TimeoutError):
                    job.done.exception(LOOK_SECONDS)
            return job.done.result()
        except BaseException:
            if not job.done.done():
                self._cancel(job)
            raise

    def post(self, function: Callable[[], object]) -> None:
        """Schedule a function in the loop, with the caller's context variables, without waiting for it."""
        self.loop.call_soon_threadsafe(function, context=contextvars.copy_context())

    def join(self) -> None:
        """Wait until the loop was stopped."""
        self._thread.join()

    def _cancel(self, job: _Job[Any]) -> None:
        self.post(job.cancel)
        with suppress(BaseException):
            job.done.exception(CANCEL_SECONDS)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
