"""The call socket: Multiplex without HTTP/2 beside each unix socket. SocketHello in call.proto specifies it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, cast

from google.protobuf.message import DecodeError

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import SandmeshError, to_detail
from sandmesh.shared.bulk_frames import LEAST, read_input
from sandmeshd.gateway.calls.relay import Client
from sandmeshd.gateway.door.local_sockets import Connections, Peer, SocketContext, SocketKind, settled
from sandmeshd.runtime.rpc.interceptors import Around, Context, unexpected

METHOD: Final = f"/{pb.DESCRIPTOR.services_by_name['CallService'].full_name}/Multiplex"
MakeClient = Callable[[Callable[[bytes], None]], Client]
"""Makes a client from what sends it a serialized response."""


class CallSocketPeer(Peer):
    """One client: its hello, then its frames."""

    def __init__(self, connected: Connections, make_client: MakeClient, arounds: Sequence[Around]) -> None:
        super().__init__(connected)
        self._make_client = make_client
        self._arounds = arounds
        self._early: list[bytes] = []
        self._client: Client | None = None
        self._ended = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Detach the client's calls; they go on."""
        super().connection_lost(exc)
        self._ended.set()
        if self._client is not None:
            self._client.detach()
            self._client = None

    def begin(self, hello: pb.SocketHello) -> None:
        """Admit the client."""
        self._serving = asyncio.get_running_loop().create_task(self._serve(hello), name="call-socket")

    def handle(self, message: bytes) -> None:
        """Route frames; those that come before the client is admitted wait."""
        if self._client is None:
            self._early.append(message)
            return
        found = read_input(message) if len(message) >= LEAST else None
        if found is not None:
            self._client.take_input(*found)
        else:
            self._client.take(pb.MultiplexRequest.FromString(message))

    def refusal(self, error: SandmeshError) -> bytes:
        """Return a response that refuses the client."""
        return pb.MultiplexResponse(batch=pb.CallEventBatch(error=to_detail(error))).SerializeToString()

    async def end(self) -> None:
        """End the connection; calls go on."""
        self.close()
        if self._serving is None:
            self.abort()
        else:
            await settled([self._serving])

    async def _serve(self, hello: pb.SocketHello) -> None:
        try:
            async with AsyncExitStack() as stack:
                context = cast("Context", SocketContext(hello))
                for around in self._arounds:
                    await stack.enter_async_context(around(METHOD, context))
                self._admit()
                await self._ended.wait()
        except SandmeshError as error:
            self.refuse(error)
        except Exception:  # as the interceptor of a server: what is unexpected leaves with an id to look up
            self.refuse(unexpected(METHOD))

    def _admit(self) -> None:
        if self._ended.is_set():
            return
        # A response leaves immediately: each call's window bounds how much may wait in the connection.
        self._client = self._make_client(self.send)
        early, self._early = self._early, []
        self._take_early(early)

    def _take_early(self, messages: Sequence[bytes]) -> None:
        try:
            for message in messages:
                self.handle(message)
        except DecodeError:
            self.close()


def call_sockets(make_client: MakeClient, arounds: Sequence[Around]) -> SocketKind:
    """Return the kind of socket that carries calls."""
    return SocketKind(".calls", lambda connected: CallSocketPeer(connected, make_client, arounds))
