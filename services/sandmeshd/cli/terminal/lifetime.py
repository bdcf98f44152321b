"""How long a command runs: until its work is done or a signal ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar

import typer

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work and return its result; SIGINT, SIGTERM and SIGHUP cancel it and wait for its clean-up.

    Raises:
        Exit: A signal ended it: the code is 128 and the signal's number.
    """
    return asyncio.run(_run_command(work))


def run_service(work: Coroutine[Any, Any, None]) -> None:
    """Run a service until it fails, or until SIGINT, SIGTERM or SIGHUP shuts it down."""
    import_module("uvloop").run(_run_service(work))  # only services pay for its import


async def _run_service(work: Coroutine[Any, Any, None]) -> None:
    async with shutdown_signals() as shutdown:
        await run_until(shutdown, work)


async def _run_command(work: Coroutine[Any, Any, T]) -> T:
    async with shutdown_signals() as shutdown:
        task = asyncio.create_task(work)
        await _wait_or_cancel(task, shutdown)
        try:
            return await task
        except asyncio.CancelledError:
            raise typer.Exit(128 + shutdown.signal_number) from None


async def run_until(shutdown: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Run work until it is done, or until `shutdown` is set, which cancels it and waits for its clean-up."""
    task = asyncio.create_task(work)
    await _wait_or_cancel(task, shutdown)
    with suppress(asyncio.CancelledError):
        await task


async def _wait_or_cancel(task: asyncio.Task[Any], shutdown: asyncio.Event) -> None:
    """Wait until the task is done; cancel it where `shutdown` is set before."""
    waiter = asyncio.create_task(shutdown.wait())
    try:
        await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
        if not task.done():
            task.cancel()


class Shutdown(asyncio.Event):
    """Set by the first signal that ends the process."""

    signal_number: int = signal.SIGINT


@asynccontextmanager
async def shutdown_signals() -> AsyncGenerator[Shutdown]:
    """Yield an event that SIGINT, SIGTERM and SIGHUP set; a second signal has its default effect."""
    loop, shutdown = asyncio.get_running_loop(), Shutdown()

    def handle(number: int) -> None:
        shutdown.signal_number = number
        shutdown.set()
        for each in SIGNALS:
            loop.remove_signal_handler(each)

    for number in SIGNALS:
        loop.add_signal_handler(number, handle, number)
    try:
        yield shutdown
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
