"""Serves one MCP client over this process's standard input and output.

Threads of our own move the lines: they end with the process, where the library's would hold up its end until the client
sends one more line. Nothing else can reach standard output: what prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server.runner import serve_loop
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from sandmeshd.facades.mcp.sandboxes import SessionSandboxes
from sandmeshd.facades.mcp.server import open_session_server
from sandmeshd.facades.mcp.settings import AdapterSettings

STDIN, STDOUT, STDERR = 0, 1, 2
CHUNK = 1 << 20

Incoming: TypeAlias = "SessionMessage | Exception"


async def serve_stdio(settings: AdapterSettings) -> None:
    """Serve until standard input ends or this is cancelled; the sandbox is gone then."""
    async with open_session_server(SessionSandboxes(settings)) as session, open_streams() as (incoming, outgoing):
        await serve_loop(session.server, incoming, outgoing, lifespan_state=None, init_options=session.options())


@asynccontextmanager
async def open_streams() -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
]:
    """Open the streams of incoming and outgoing messages."""
    came, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    source, sink = claim(STDIN), claim(STDOUT)
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=64)
    _start(lambda: _read_lines(source, lambda line: _hand_over(loop, lines, line)), "sandmesh-mcp-in")
    writer = _Writer(sink, loop)
    moving = [asyncio.create_task(_take_in(lines, came)), asyncio.create_task(_send_out(leaving, writer))]
    try:
        yield incoming, outgoing
    finally:
        await asyncio.wait(moving[1:], timeout=1.0)
        for task in moving:
            task.cancel()
        await asyncio.wait(moving)
        for stream in (came, incoming, outgoing, leaving):
            stream.close()


def claim(descriptor: int) -> int:
    """Return a duplicate of a standard stream, which from then on is empty or the same as standard error."""
    own = os.dup(descriptor)
    if descriptor == STDOUT:
        os.dup2(STDERR, STDOUT)
    else:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, descriptor)
        os.close(null)
    return own


def _start(work: Callable[[], None], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


def _read_lines(source: int, hand_over: Callable[[bytes | None], bool]) -> None:
    with os.fdopen(source, "rb") as file, suppress(OSError):
        for line in file:
            if line.strip() and not hand_over(line):
                return
    hand_over(None)


def _hand_over(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None], line: bytes | None) -> bool:
    """Put a line where the loop finds it, once there is room; say whether the loop still runs."""
    putting = lines.put(line)
    try:
        asyncio.run_coroutine_threadsafe(putting, loop).result()
    except (RuntimeError, CancelledError):
        putting.close()
        return False
    return True


async def _take_in(lines: asyncio.Queue[bytes | None], came: MemoryObjectSendStream[Incoming]) -> None:
    async with came:
        while (line := await lines.get()) is not None:
            await came.send(_parse(line))


def _parse(line: bytes) -> Incoming:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError as error:
        return error


async def _send_out(leaving: MemoryObjectReceiveStream[SessionMessage], writer: _Writer) -> None:
    async with leaving:
        async for sent in leaving:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            await writer.write(text.encode() + b"\n")


class _Writer:
    """Writes in a thread, so that a client that does not read holds up nothing but its own answers."""

    def __init__(self, sink: int, loop: asyncio.AbstractEventLoop) -> None:
        self._sink = sink
        self._loop = loop
        self._wanted: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        _start(self._write_forever, "sandmesh-mcp-out")

    async def write(self, data: bytes) -> None:
        """Write all of it; a client that is gone hears nothing."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._wanted.put((data, done))
        await done

    def _write_forever(self) -> None:
        while True:
            data, done = self._wanted.get()
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._sink, view) :]
            except OSError:
                pass
            try:
                self._loop.call_soon_threadsafe(_settle, done)
            except RuntimeError:
                return


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
