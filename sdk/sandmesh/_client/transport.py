"""The transport to one gateway: a gRPC channel, and local sockets in its place where the gateway has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import TypeVar, cast

import grpc
from google.protobuf.message import Message

from sandmesh._calls.local_socket import CallSocket, Metadata, connect
from sandmesh._calls.multiplexer import CallStream
from sandmesh._client.addresses import DialTarget
from sandmesh._client.channel import METHODS, Stubs
from sandmesh._client.heartbeat import WatchedStream
from sandmesh._client.tcp import tcp_calls
from sandmesh._client.unary_socket import LARGEST_REQUEST, UnarySocket
from sandmesh.errors import MeshUnavailable
from sandmesh.shared.traces.context import current_trace, metadata_of

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
Choose = Callable[[Stubs], "grpc.aio.UnaryUnaryMultiCallable[Q, A]"]
ChooseStream = Callable[[Stubs], "grpc.aio.UnaryStreamMultiCallable[Q, A]"]


class Transport:
    """Sends RPCs to one gateway; it connects at the first one and again whenever it broke."""

    def __init__(self, target: DialTarget, metadata: Metadata) -> None:
        self.carried_calls = False
        """Whether the stream of all calls was opened over it once: another one is due to a failure."""
        self._target = target
        self._path = target.path
        self._metadata = metadata
        self._stubs = Stubs(target)
        self._socket: UnarySocket | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def unary(self, choose: Choose[Q, A], request: Q, seconds: float) -> A:
        """Send a unary RPC, by the local socket in a part of gRPC's time.

        Raises:
            AioRpcError, SandmeshError: What the gateway answered.
            MeshUnavailable: The transport was closed.
        """
        socket = self._socket
        if self._path is not None and (socket is None or not socket.usable):
            socket = await self._connect(self._path)
        if self._closed:
            raise MeshUnavailable("the connection was closed before the request was sent")
        trace = current_trace()
        if socket is None or request.ByteSize() > LARGEST_REQUEST:
            metadata = (*self._metadata, *metadata_of(trace))
            return await choose(self._stubs)(request, timeout=seconds, metadata=metadata)
        method = METHODS[request.DESCRIPTOR.full_name]
        response = await socket.request(method.path, request.SerializeToString(), seconds, trace)
        return cast("A", method.response.FromString(response))

    def follow(self, choose: ChooseStream[Q, A], request: Q) -> AsyncIterable[A]:
        """Send an RPC that is answered by a stream, and return its responses."""
        return choose(self._stubs)(request, metadata=self._metadata)

    async def open_stream(self, busy: Callable[[], bool], on_silent: Callable[[], None]) -> CallStream:
        """Open the stream of all calls, on a separate connection where that works: a call takes half the time then.

        `on_silent` is called where nothing is heard over TCP while `busy`.
        """
        if self._path is None:
            direct = await tcp_calls.connect(self._target, self._metadata, busy, on_silent)
            return direct or self._watched(busy, on_silent)
        return await self.open_bulk_stream(busy, on_silent)

    async def open_bulk_stream(self, busy: Callable[[], bool], on_silent: Callable[[], None]) -> CallStream:
        """Open a stream for one call of much data: over TCP it shares gRPC's connection."""
        found = None if self._path is None else await connect(CallSocket, self._path, self._metadata)
        return found or self._watched(busy, on_silent)

    def retire(self) -> None:
        """Send no further RPC by the local socket, which closes with its last response."""
        if self._socket is not None:
            self._socket.retire()

    async def close_socket(self) -> None:
        """Close the local socket for good; RPCs that begin from now on are refused."""
        self._closed = True
        async with self._connecting:
            if self._socket is not None:
                self._socket.close()

    async def close_channel(self, grace: float | None = None) -> None:
        """Close the gRPC channel; what is under way may take so many seconds."""
        await self._stubs.close(grace)

    def _watched(self, busy: Callable[[], bool], on_silent: Callable[[], None]) -> WatchedStream:
        return WatchedStream(self._stubs.calls.Multiplex(metadata=self._metadata), busy, on_silent)

    async def _connect(self, path: str) -> UnarySocket | None:
        async with self._connecting:
            if not self._closed and (self._socket is None or not self._socket.usable):
                self._socket = await connect(UnarySocket, path, self._metadata)
        return self._socket
