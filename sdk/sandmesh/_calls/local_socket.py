"""The stream of all calls on a separate connection, and the sockets beside a gateway's unix socket.

These spare a client HTTP/2; SocketHello in call.proto specifies them.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import ClassVar, TypeVar, cast

from google.protobuf.message import DecodeError

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import MeshUnavailable, from_detail
from sandmesh.shared import frames

Metadata = tuple[tuple[str, str], ...]
S = TypeVar("S", bound="LocalSocket")


class DirectStream(asyncio.Protocol, ABC):
    """A stream of all calls that the event loop itself reads and writes, without the threads and queues of gRPC.

    It has what one of Multiplex has: `write`, `read`, `done_writing` and `cancel`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        """Why it ended, where that is known."""
        self.ended = False
        self.writable = asyncio.Event()
        """Set while a request would be sent without waiting."""
        self.writable.set()
        self._responses: deque[pb.MultiplexResponse] = deque()
        self._handler: Callable[[pb.MultiplexResponse], None] | None = None
        self._arrived = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake waiting readers and writers."""
        self.ended = True
        self.writable.set()
        self._arrived.set()

    def pause_writing(self) -> None:
        """Block `write`."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Release `write`."""
        self.writable.set()

    def handle(self, message: bytes) -> None:
        """Deliver a response, or keep it until it is read; each call's window bounds how many there are.

        Raises:
            DecodeError: It is none.
        """
        response = pb.MultiplexResponse.FromString(message)
        batch = response.batch
        if not batch.call_id and batch.HasField("error"):
            self.error = from_detail(batch.error)
        elif self._handler is not None:
            self._handler(response)
        else:
            self._responses.append(response)
            self._arrived.set()

    def subscribe(self, handler: Callable[[pb.MultiplexResponse], None]) -> None:
        """Handle responses the moment they arrive; from now on `read` only waits for the end."""
        self._handler = handler
        while self._responses:
            handler(self._responses.popleft())

    async def read(self) -> pb.MultiplexResponse | None:
        """Return the next response, None at the end.

        Raises:
            SandmeshError, AioRpcError: The gateway refused the client.
            Exception: What handled the responses failed with it.
        """
        while not self._responses:
            if self.ended:
                if self.error is not None:
                    raise self.error
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._responses.popleft()

    async def write(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request, which may be serialized, once there is room; on an ended connection it goes nowhere."""
        if not self.writable.is_set():
            await self.writable.wait()
        self.write_now(request)

    @abstractmethod
    def write_now(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request as `write` does, however much waits already."""

    @abstractmethod
    async def done_writing(self) -> None:
        """Announce that no request follows."""

    @abstractmethod
    def cancel(self) -> bool:
        """Abort the connection."""


class LocalSocket(asyncio.Protocol, ABC):
    """One connection: a hello, then messages both ways, each with its length before it."""

    SUFFIX: ClassVar[str]
    """What follows the gateway's path in the name of this kind of socket."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.error: Exception | None = None
        """Why it ended, where that is known."""
        self._buffer = frames.FrameBuffer(frames.MAX_SOCKET_MESSAGE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Handle the whole messages among the bytes received."""
        try:
            for message in self._buffer.feed(data):
                self.handle(message)
        except (frames.FrameTooLarge, DecodeError) as error:
            self.fail(MeshUnavailable(f"the peer is not a gateway: {error}"))
        except Exception as error:
            self.fail(error)  # a subscriber's defect is reported by who reads

    @abstractmethod
    def handle(self, message: bytes) -> None:
        """Handle a message of the gateway's.

        Raises:
            DecodeError: It is none.
        """

    def send_hello(self, metadata: Metadata) -> None:
        """Send the first message."""
        self.send(pb.SocketHello(protocol=frames.SOCKET_PROTOCOL, metadata=dict(metadata)).SerializeToString())

    def send(self, message: bytes) -> None:
        """Send a message; on an ended connection it goes nowhere."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frames.pack(message))

    def fail(self, error: Exception) -> None:
        """Abort the connection with an error."""
        self.error = error
        if self.transport is not None:
            self.transport.abort()


class CallSocket(DirectStream, LocalSocket):
    """The stream of all calls by a local socket."""

    SUFFIX: ClassVar[str] = ".calls"

    def write_now(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request as `write` does, however much waits already."""
        if self.transport is not None and not self.ended:
            message = request if isinstance(request, bytes) else request.SerializeToString()
            self.transport.write(frames.prefix(len(message)) + message)

    async def done_writing(self) -> None:
        """Announce that no request follows."""
        if self.transport is not None and not self.ended:
            self.transport.write_eof()

    def cancel(self) -> bool:
        """Abort the connection."""
        if self.transport is not None:
            self.transport.abort()
        return True


async def connect(kind: type[S], path: str, metadata: Metadata) -> S | None:
    """Connect to one of the sockets beside a gateway's unix socket; return None where there is none.

    The path may be a symbolic link to the gateway's socket, which has no others beside it.
    """
    loop = asyncio.get_running_loop()
    try:
        _, made = await loop.create_unix_connection(kind, _beside(path, kind.SUFFIX))
    except OSError:
        return None
    made.send_hello(metadata)
    return made


def _beside(path: str, suffix: str) -> str:
    return f"{os.path.realpath(path)}{suffix}"
