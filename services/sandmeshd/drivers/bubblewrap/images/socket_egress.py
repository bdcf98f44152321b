"""The egress of a program that has no agent: its connections come to a unix socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from sandmesh.api.agent.v1.agent_pb2 import EgressEnded, EgressFrame
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.egress.exchange import Exchange
from sandmeshd.drivers.egress.grants import policy_of
from sandmeshd.drivers.egress.policy import EgressRefused, read_hosts
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import WINDOW_BYTES, ProxyStream
from sandmeshd.drivers.egress.upstream.dialer import Dialer, Upstream
from sandmeshd.drivers.egress.upstream.outlets import outlet_of
from sandmeshd.runtime.resolver import SystemResolver

log = structlog.get_logger()

_PIECE: Final = 1 << 16


@asynccontextmanager
async def serving_socket(
    listener: socket.socket,
    grant: sandbox_pb2.NetworkGrant,
    settings: EgressSettings,
    report: Callable[[EgressRefused], None],
) -> AsyncGenerator[None]:
    """Serve the proxy at a socket that is bound, as long as the block runs.

    Raises:
        InvalidArgument: A host of the grant is not one.
    """
    resolver = SystemResolver()
    upstream = Upstream(settings, resolver, outlet_of(settings), Reserved(resolver, read_hosts(settings.reserved)))
    dialer = Dialer(policy_of(grant, settings), upstream)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_serve(reader, writer, dialer, settings, report))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_unix_server(accept, sock=listener)
    try:
        yield
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    dialer: Dialer,
    settings: EgressSettings,
    report: Callable[[EgressRefused], None],
) -> None:
    connection = _StepConnection(reader, writer)
    reading = asyncio.create_task(connection.read_all())
    try:
        await Exchange(connection.stream, dialer, None, settings, report).serve()
    except Exception:
        log.exception("a connection out of a build failed unexpectedly")
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class _StepConnection:
    """A connection at the socket, as a stream of frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stream = ProxyStream(1, self._send)
        self._reader = reader
        self._writer = writer
        self._credit = WINDOW_BYTES
        self._granted = asyncio.Event()

    async def read_all(self) -> None:
        """Pass on what comes, as far as the stream has room."""
        try:
            while data := await self._reader.read(min(_PIECE, self._credit)):
                self._credit -= len(data)
                self.stream.take(EgressFrame(data=data))
                while not self._credit:
                    self._granted.clear()
                    await self._granted.wait()
            self.stream.take(EgressFrame(ended=EgressEnded()))
        except OSError:
            self.stream.lose()

    async def _send(self, frame: EgressFrame) -> None:
        step = frame.WhichOneof("step")
        if step == "credit":
            self._credit += frame.credit
            self._granted.set()
        elif step == "data":
            self._writer.write(frame.data)
            await self._writer.drain()
            self.stream.take(EgressFrame(credit=len(frame.data)))
        elif step == "ended" and self._writer.can_write_eof():
            self._writer.write_eof()
        elif step == "reset":
            self._writer.transport.abort()
