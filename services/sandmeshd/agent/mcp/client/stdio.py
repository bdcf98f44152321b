"""The stdio transport over pipes that another process made: messages are lines of JSON.

The official library's own starts the server itself; here the agent does, which kills it by its process group.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

LARGEST_MESSAGE: Final = 80 << 20
"""The most bytes of a message from a server; twice as many may wait in the buffer."""
MAX_INVALID_LINES: Final = 10_000
"""How many lines in a row may not be messages before a server is given up."""
_TURN: Final = 64

Incoming: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing: TypeAlias = MemoryObjectSendStream[SessionMessage]


class InvalidOutput:
    """Lines of a server's standard output that are not messages."""

    def __init__(self) -> None:
        self.lines = 0
        self.first = ""
        self.broken = ""
        """Why the server was given up."""
        self._in_a_row = 0

    def add(self, line: bytes) -> bool:
        """Count a line that is not a message. Returns: whether it was one too many."""
        self.first = self.first or line[:200].decode(errors="replace").strip()
        self.lines += 1
        self._in_a_row += 1
        if self._in_a_row > MAX_INVALID_LINES:
            self.broken = (
                f"it wrote {self._in_a_row} lines that are not messages to its standard output: {self.first!r}"
            )
        return bool(self.broken)

    def message(self) -> None:
        """Count a message."""
        self._in_a_row = 0

    @property
    def problem(self) -> str:
        """A description of the lines; empty where there are none."""
        if not self.lines:
            return ""
        return (
            f"{self.lines} lines of its standard output were not messages and were skipped, the first: {self.first!r}"
        )


@asynccontextmanager
async def open_stdio(
    pipes: tuple[int, int], invalid_output: InvalidOutput
) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Open the streams of a server with these pipes as its standard input and output."""
    reader, writer, transport = await _connect(pipes)
    inward, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outward = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, reader, inward, invalid_output)
            group.start_soon(_write, writer, outward)
            yield incoming, outgoing
            group.cancel_scope.cancel()
    finally:
        writer.close()
        transport.close()
        for stream in (inward, incoming, outgoing, outward):
            stream.close()


async def _connect(
    pipes: tuple[int, int],
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.ReadTransport]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LARGEST_MESSAGE)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipes[1], "rb", 0)
    )
    # A protocol of readers is also what knows when a writer has to wait.
    sink, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(pipes[0], "wb", 0)
    )
    return reader, asyncio.StreamWriter(sink, protocol, None, loop), transport


async def _read(
    reader: asyncio.StreamReader,
    inward: MemoryObjectSendStream[SessionMessage | Exception],
    invalid_output: InvalidOutput,
) -> None:
    with inward:
        async for line in _lines(reader, invalid_output):
            try:
                message = jsonrpc_message_adapter.validate_json(line)
            except ValueError:
                if line.strip() and invalid_output.add(line):
                    return
                continue
            invalid_output.message()
            await inward.send(SessionMessage(message))


async def _lines(reader: asyncio.StreamReader, invalid_output: InvalidOutput) -> AsyncIterator[bytes]:
    for number in range(1, 1 << 62):
        try:
            line = await reader.readline()
        except ValueError:
            invalid_output.broken = f"it wrote a message of more than {LARGEST_MESSAGE >> 20} MiB"
            return
        if not line:
            return
        yield line
        if number % _TURN == 0:
            # Lines that are there already would leave no turn to other tasks.
            await asyncio.sleep(0)


async def _write(writer: asyncio.StreamWriter, outward: MemoryObjectReceiveStream[SessionMessage]) -> None:
    # A broken connection is noticed by the reader.
    with outward, suppress(ConnectionError, RuntimeError):
        async for sent in outward:
            writer.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await writer.drain()
