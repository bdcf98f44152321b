"""A relay between the services and their Redis that a test may hold up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class Stall:
    """Bytes pass in both directions while it is open, and wait while it is closed."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self.delay = 0.0
        """For how many seconds everything is held up while it is open."""
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Hold everything up."""
        self._open.clear()

    def open(self) -> None:
        """Resume."""
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)
        except OSError:
            writer.close()
            return
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, up_writer))
                group.create_task(self._carry(up_reader, writer))
        finally:
            writer.close()
            up_writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._open.wait()
                await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def end(self) -> None:
        """End every connection."""
        self._open.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def stalling(socket: Path, upstream: Path) -> AsyncGenerator[Stall]:
    """Relay a unix socket to another until the block ends."""
    stall = Stall(upstream)
    server = await asyncio.start_unix_server(stall.serve, socket)
    try:
        yield stall
    finally:
        server.close()
        await stall.end()
