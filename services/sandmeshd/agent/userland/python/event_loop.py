"""The event loop of a kernel: the one that asyncio finds in every cell, and that goes on while the kernel idles.

A cell without `await` runs beside the loop, not in it, so `asyncio.run` works there as in a script. The loop is still
the current one for whatever asks, so that `asyncio.create_task` works, too: what runs a loop takes it away first.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import types
from asyncio import base_events, events, runners
from collections.abc import Callable, Coroutine, Generator
from importlib import import_module
from typing import Any, Final, TypeVar

R = TypeVar("R")

# signal.signal makes enums of what it gets and gives, which takes ten times as long.
set_handler: Final[Any] = import_module("_signal").signal
handler_of: Final[Any] = import_module("_signal").getsignal
_get: Final[Any] = events._get_running_loop  # noqa: SLF001 - asyncio's own functions for those who write loops
_set: Final[Any] = events._set_running_loop  # noqa: SLF001 - as above
_CANCEL_SECONDS: Final = 0.5
"""How long an interrupted cell that awaits may take to end."""


class KernelLoop:
    """The event loop of this process's cells, made when it is first needed."""

    def __init__(self) -> None:
        self._loop: Any = None
        self._pid = 0
        self._used = False
        self._task: asyncio.Task[Any] | None = None
        self._interrupted = False
        self._abandoned: list[Any] = []

    @property
    def loop(self) -> Any:
        """The loop of this process's cells, None where it was not needed yet."""
        return self._loop

    def abandon(self) -> None:
        """Leave the loop and its tasks to the process that this one was forked from.

        They are kept: tasks that are destroyed run their `finally` blocks, which are the other process's to run.
        """
        if self._loop is not None:
            self._abandoned += [self._loop, *asyncio.all_tasks(self._loop)]
            self._loop = None

    def enter(self) -> None:
        """Make the loop the current one, for a cell that begins."""
        if self._loop is None or self._loop.is_closed() or self._pid != os.getpid():
            self._pid, self._used = os.getpid(), False
            try:
                self._loop = asyncio.new_event_loop()
            except OSError:
                # Code has taken all descriptors or watches: cells without `await` still run.
                self._loop = None
            events.set_event_loop(self._loop)
        _set(self._loop)

    def leave(self) -> None:
        """Make no loop the current one: the cell has ended."""
        _set(None)

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a cell that awaits; an interrupt is raised where it waits."""
        if self._loop is None:
            coroutine.close()
            raise OSError("no event loop could be made for this cell: close descriptors, or restart the kernel")
        self._used, self._interrupted = True, False
        task = self._task = self._loop.create_task(_interruptible(coroutine, self._take_interrupt))
        before = handler_of(signal.SIGINT)
        if before is signal.default_int_handler:
            set_handler(signal.SIGINT, self._interrupt)
        try:
            result: R = self._loop.run_until_complete(task)
        except BaseException:
            self._end(task)
            raise
        finally:
            self._task = None
            if before is signal.default_int_handler:
                set_handler(signal.SIGINT, before)
        return result

    def _interrupt(self, number: int, frame: object) -> None:
        """Interrupt the running cell where its own code runs, or else where it waits."""
        task = self._task
        if task is None or asyncio.current_task(self._loop) is task:
            raise KeyboardInterrupt
        self._interrupted = True
        self._loop.call_soon_threadsafe(task.cancel)

    def wait(self, fd: int) -> None:
        """Run what cells left in the loop until a descriptor is readable; return immediately where nothing is left."""
        loop = self._loop
        if loop is None or loop.is_closed() or self._pid != os.getpid():
            return
        if not self._used:
            waits = loop._ready or loop._scheduled or len(loop._selector.get_map()) > 1 or loop._default_executor  # noqa: SLF001
            self._used = bool(waits) or bool(asyncio.all_tasks(loop))
            if not self._used:
                return
        try:
            loop.add_reader(fd, loop.stop)
        except OSError:
            # No watch is left: what cells left in the loop waits until one is.
            return
        try:
            while not loop.is_closed():
                try:
                    loop.run_forever()
                except (KeyboardInterrupt, SystemExit):
                    # A task raised it; asyncio has reported it, and the others go on.
                    continue
                break
        finally:
            if not loop.is_closed():
                loop.remove_reader(fd)

    def _take_interrupt(self) -> bool:
        interrupted, self._interrupted = self._interrupted, False
        return interrupted

    def _end(self, task: asyncio.Task[Any]) -> None:
        """Cancel the task of a cell that has ended otherwise: it must not go on behind the next one."""
        if not task.done() and not self._loop.is_closed():
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task], timeout=_CANCEL_SECONDS))


@types.coroutine
def _interruptible(coroutine: Coroutine[Any, Any, R], take_interrupt: Callable[[], bool]) -> Generator[Any, Any, R]:
    """Await a coroutine; a cancellation that stands for an interrupt is a KeyboardInterrupt inside it."""
    proceed: Callable[[], Any] = functools.partial(coroutine.send, None)
    while True:
        try:
            awaited = proceed()
        except StopIteration as end:
            value: R = end.value
            return value
        try:
            yield awaited
        except asyncio.CancelledError as error:
            raised = KeyboardInterrupt() if take_interrupt() else error
            proceed = functools.partial(coroutine.throw, raised)
        except BaseException as error:
            proceed = functools.partial(coroutine.throw, error)
        else:
            proceed = functools.partial(coroutine.send, None)


def install() -> None:
    """Make everything in asyncio that runs a loop do so also where a loop is current that does not run."""
    runner: Any = getattr(runners, "Runner", None)
    """Python 3.11 has it; an image's own may be older."""
    for owner, name in (
        (base_events.BaseEventLoop, "run_forever"),
        (base_events.BaseEventLoop, "run_until_complete"),
        *([(runner, "run")] if runner else []),
    ):
        setattr(owner, name, apart(getattr(owner, name)))
    asyncio.run = runners.run = apart(runners.run)


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that runs a loop do so while a loop is current that does not run."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        current = _get()
        if current is None or current.is_running():
            return function(*args, **kwargs)
        _set(None)
        try:
            return function(*args, **kwargs)
        finally:
            if not current.is_closed():
                _set(current)

    return run
