"""How long a command runs: until its work is done or it is told to end."""

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


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; SIGINT, SIGTERM and SIGHUP cancel it and wait for its clean-up.

    Raises:
        Exit: It was told to end: the code is 128 and the signal's number.
    """
    return asyncio.run(_run_to_end(work))


def run_until_told(work: Coroutine[Any, Any, None]) -> None:
    """Run a service until SIGINT, SIGTERM or SIGHUP, which is its orderly end, or until it fails."""
    import_module("uvloop").run(_run_until_told(work))  # only services pay for its import


async def _run_until_told(work: Coroutine[Any, Any, None]) -> None:
    async with told_to_end() as ended:
        await until(ended, work)


async def _run_to_end(work: Coroutine[Any, Any, T]) -> T:
    async with told_to_end() as ended:
        working = asyncio.create_task(work)
        await first_of(working, ended)
        try:
            return await working
        except asyncio.CancelledError:
            raise typer.Exit(128 + ended.number) from None


async def first_of(working: asyncio.Task[Any], ended: asyncio.Event) -> None:
    """Wait until the task is done; where `ended` is set before, cancel the task."""
    waiting = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if not working.done():
            working.cancel()


async def until(ended: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Run work until it is done, or until `ended` is set, which cancels it and waits for its clean-up."""
    working = asyncio.create_task(work)
    await first_of(working, ended)
    with suppress(asyncio.CancelledError):
        await working


class Told(asyncio.Event):
    """Set when the process was told to end; `number` is the signal's."""

    number: int = signal.SIGINT


@asynccontextmanager
async def told_to_end() -> AsyncGenerator[Told]:
    """Give an event that SIGINT, SIGTERM and SIGHUP set; a second one ends the process at once, as it would have."""
    loop, ended = asyncio.get_running_loop(), Told()

    def end(number: int) -> None:
        ended.number = number
        ended.set()
        for each in SIGNALS:
            loop.remove_signal_handler(each)

    for number in SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        yield ended
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
