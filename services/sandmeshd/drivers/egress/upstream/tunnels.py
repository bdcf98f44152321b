"""Bytes in both directions, until both ended or nothing moved for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from sandmeshd.drivers.egress.streams import PIECE_BYTES, ProxyStream
from sandmeshd.drivers.egress.upstream.outlets import Connection


class Idle:
    """A time limit that each sign of life sets back."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(seconds)

    async def __aenter__(self) -> Idle:
        """Begin."""
        await self._limit.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End.

        Raises:
            TimeoutError: Nothing moved for too long.
        """
        await self._limit.__aexit__(*exc)  # type: ignore[arg-type]  # as they were given

    def touch(self) -> None:
        """Note that something moved."""
        self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)


async def tunnel(
    stream: ProxyStream, outside: Connection, first: bytes, idle_seconds: float, check: Callable[[bytes], None]
) -> None:
    """Carry bytes both directions, `first` before all others, until both sides ended; `check` sees what leaves.

    Raises:
        OSError: One of them broke, or nothing moved for so long (TimeoutError).
        Refused: As `check`.
    """
    reader, writer = outside
    async with Idle(idle_seconds) as idle:
        directions = [
            asyncio.create_task(_out(stream, writer, first, idle, check)),
            asyncio.create_task(_in(reader, stream, idle)),
        ]
        try:
            await asyncio.gather(*directions)
        finally:
            await ended(directions)


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return when they are gone."""
    all_of_them = list(tasks)
    for task in all_of_them:
        task.cancel()
    await asyncio.gather(*all_of_them, return_exceptions=True)


async def _out(
    stream: ProxyStream, writer: asyncio.StreamWriter, first: bytes, idle: Idle, check: Callable[[bytes], None]
) -> None:
    data = first or await stream.read()
    while data:
        idle.touch()
        check(data)
        writer.write(data)
        await writer.drain()
        data = await stream.read()
    if writer.can_write_eof():
        writer.write_eof()


async def _in(reader: asyncio.StreamReader, stream: ProxyStream, idle: Idle) -> None:
    while data := await reader.read(PIECE_BYTES):
        idle.touch()
        await stream.write(data)
    await stream.end()
