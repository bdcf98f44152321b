"""Unary RPCs over a gateway's ask socket, which SocketAsk in call.proto specifies."""

from __future__ import annotations

import asyncio
import itertools
from typing import cast

from google.protobuf.message import DecodeError

from sandmesh._calls.call_socket import Metadata
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import DeadlineExceeded, MeshUnavailable, SandmeshError, from_detail
from sandmesh.shared import frames

LARGEST_REQUEST = frames.MAX_SOCKET_MESSAGE - 1024
"""The most bytes of a request: what stands around it has to fit too."""


class AskSocket(asyncio.Protocol):
    """One connection, for any number of RPCs at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = frames.FrameBuffer(frames.MAX_SOCKET_MESSAGE)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._lost: SandmeshError = MeshUnavailable("the mesh ended the connection", changed=True)
        self.usable = True
        """Whether it takes further RPCs."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let everybody know who waits."""
        self.usable = False
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(self._lost)

    def data_received(self, data: bytes) -> None:
        """Give whole answers away."""
        try:
            for message in self._buffer.feed(data):
                self._take(pb.SocketAnswer.FromString(message))
        except (frames.FrameTooLarge, DecodeError) as error:
            self._fail(MeshUnavailable(f"what answers is no gateway: {error}"))

    def greet(self, metadata: Metadata) -> None:
        """Send the hello."""
        self._send(pb.SocketHello(protocol=frames.SOCKET_PROTOCOL, metadata=dict(metadata)))

    async def ask(self, method: str, request: bytes, seconds: float) -> bytes:
        """Send an RPC and give its serialized answer, waiting for at most `seconds`.

        Raises:
            SandmeshError: What the mesh answered.
            MeshUnavailable: The connection ended.
            DeadlineExceeded: There was no answer in time.
        """
        if not self.usable:
            raise self._lost
        ask = pb.SocketAsk(id=next(self._numbers), method=method, request=request)
        ask.timeout.FromMicroseconds(int(seconds * 1e6))
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[ask.id] = answer
        self._send(ask)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except DeadlineExceeded:
            raise
        except TimeoutError:
            message = f"the mesh did not answer within {seconds:.3g} s"
            raise DeadlineExceeded(message, {"method": method}, changed=True) from None
        finally:
            self._forget(ask.id)

    def retire(self) -> None:
        """Take no further RPCs, and close when those under way are answered."""
        self.usable = False
        self._close_if_idle()

    def close(self) -> None:
        """Close at once; who waits is told."""
        self._fail(MeshUnavailable("the connection was closed under the request", changed=True))

    def _take(self, answer: pb.SocketAnswer) -> None:
        if answer.id == 0:
            self._fail(from_detail(answer.error))
            return
        waiting = self._waiting.pop(answer.id, None)
        if waiting is None or waiting.done():
            return
        if answer.HasField("error"):
            waiting.set_exception(from_detail(answer.error))
        else:
            waiting.set_result(answer.response)

    def _forget(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            self._send(pb.SocketAsk(id=number, cancel=True))
        if not self.usable:
            self._close_if_idle()

    def _fail(self, error: SandmeshError) -> None:
        self.usable = False
        self._lost = error
        if self._transport is not None:
            self._transport.abort()

    def _close_if_idle(self) -> None:
        if not self._waiting and self._transport is not None:
            self._transport.close()

    def _send(self, message: pb.SocketHello | pb.SocketAsk) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames.pack(message.SerializeToString()))


async def connect(path: str, metadata: Metadata) -> AskSocket | None:
    """Connect to the ask socket beside a gateway's unix socket; None where there is none."""
    loop = asyncio.get_running_loop()
    try:
        _, made = await loop.create_unix_connection(AskSocket, f"{path}.asks")
    except OSError:
        return None
    made.greet(metadata)
    return made
