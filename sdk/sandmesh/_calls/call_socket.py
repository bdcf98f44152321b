"""The stream of all calls over a gateway's call socket, which SocketHello in call.proto specifies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import MeshUnavailable, from_detail
from sandmesh.shared import frames

Metadata = tuple[tuple[str, str], ...]


class CallSocket(asyncio.Protocol):
    """One connection, with what a gRPC stream of Multiplex has: `write`, `read`, `done_writing` and `cancel`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = frames.FrameBuffer(frames.MAX_SOCKET_MESSAGE)
        self._responses: deque[pb.MultiplexResponse] = deque()
        self._ended = False
        self._refused: Exception | None = None
        self._taker: Callable[[pb.MultiplexResponse], None] | None = None
        self._news: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let readers and writers know."""
        self._ended = True
        self._room.set()
        self._tell()

    def pause_writing(self) -> None:
        """Make `write` wait."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Let it go on."""
        self._room.set()

    def data_received(self, data: bytes) -> None:
        """Give the responses away, or keep them until they are read; each call's window bounds how many there are."""
        try:
            for message in self._buffer.feed(data):
                self._take(pb.MultiplexResponse.FromString(message))
        except frames.FrameTooLarge as error:
            self._fail(MeshUnavailable(f"what answers is no gateway: {error}"))
        except Exception as error:
            self._fail(error)  # a receiver's defect is the reader's to report
        self._tell()

    def give_to(self, take: Callable[[pb.MultiplexResponse], None]) -> None:
        """Have responses taken the moment they arrive; from now `read` tells only the end."""
        self._taker = take
        while self._responses:
            take(self._responses.popleft())

    async def read(self) -> pb.MultiplexResponse | None:
        """Give the next response, None at the end.

        Raises:
            SandmeshError: The gateway refused the client.
            Exception: What took the responses failed with it.
        """
        while not self._responses:
            if self._ended:
                if self._refused is not None:
                    raise self._refused
                return None
            self._news = self._loop.create_future()
            await self._news
        return self._responses.popleft()

    async def write(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request, which may be serialized, once there is room; on an ended connection it goes nowhere."""
        if not self._room.is_set():
            await self._room.wait()
        self.write_now(request)

    @property
    def has_room(self) -> bool:
        """Whether a request would leave at once."""
        return self._room.is_set()

    def write_now(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request, as `write` does but whatever waits already."""
        if self._transport is not None and not self._ended:
            self._transport.write(frames.pack(request if isinstance(request, bytes) else request.SerializeToString()))

    async def done_writing(self) -> None:
        """Say that no request follows."""
        if self._transport is not None and not self._ended:
            self._transport.write_eof()

    def cancel(self) -> bool:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        return True

    def greet(self, metadata: Metadata) -> None:
        """Send the hello."""
        hello = pb.SocketHello(protocol=frames.SOCKET_PROTOCOL, metadata=dict(metadata))
        if self._transport is not None:
            self._transport.write(frames.pack(hello.SerializeToString()))

    def _take(self, response: pb.MultiplexResponse) -> None:
        batch = response.batch
        if batch.call_id or not batch.HasField("error"):
            (self._taker or self._responses.append)(response)
        else:
            self._refused = from_detail(batch.error)

    def _fail(self, error: Exception) -> None:
        self._refused = error
        self.cancel()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


async def connect(path: str, metadata: Metadata) -> CallSocket | None:
    """Connect to the call socket beside a gateway's unix socket; None where there is none."""
    loop = asyncio.get_running_loop()
    try:
        _, made = await loop.create_unix_connection(CallSocket, f"{path}.calls")
    except OSError:
        return None
    made.greet(metadata)
    return made
