"""The sockets beside a gateway's unix socket, which spare a client HTTP/2: SocketHello in call.proto specifies them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import ClassVar, TypeVar, cast

from google.protobuf.message import DecodeError

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import MeshUnavailable
from sandmesh.shared import frames

Metadata = tuple[tuple[str, str], ...]
S = TypeVar("S", bound="LocalSocket")


class LocalSocket(asyncio.Protocol, ABC):
    """One connection: a hello, then messages both ways, each with its length before it."""

    SUFFIX: ClassVar[str]
    """What follows the gateway's path in the name of this kind of socket."""

    def __init__(self) -> None:
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
        """End the connection at once, with an error."""
        self.error = error
        if self.transport is not None:
            self.transport.abort()


async def connect(kind: type[S], path: str, metadata: Metadata) -> S | None:
    """Connect to one of the sockets beside a gateway's unix socket; return None where there is none."""
    loop = asyncio.get_running_loop()
    try:
        _, made = await loop.create_unix_connection(kind, f"{path}{kind.SUFFIX}")
    except OSError:
        return None
    made.send_hello(metadata)
    return made
