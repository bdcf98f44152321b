"""The call socket: Multiplex without HTTP/2 beside each unix socket. SocketHello in call.proto specifies it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

from google.protobuf.message import DecodeError

from sandmesh._bulk import LEAST, read_input
from sandmesh._framing import Cutter, FrameTooLarge, frame
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import ProtocolMismatch, SandmeshError
from sandmeshd.gateway.calls import NAME, Client, Put
from sandmeshd.gateway.relay import Relay
from sandmeshd.gateway.wire import refusal
from sandmeshd.runtime.interception import Around, Context, unexpected

PROTOCOL: Final = 1
METHOD: Final = f"/{NAME}/Multiplex"


_TURNS: Final = 4
"""Turns of the loop from a waiting connection to `connection_made`."""
MakeClient = Callable[[Put], Client]


class SocketContext:
    """What interceptors use of a ServicerContext."""

    def __init__(self, metadata: dict[str, str]) -> None:
        self._metadata = tuple(metadata.items())

    def peer(self) -> str:
        """Say where the client is."""
        return "unix:"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Give what came with the hello."""
        return self._metadata


class Connections(set["CallSocket"]):
    """The clients that are there; `closing` sends away who comes late."""

    closing = False


class CallSocket(asyncio.Protocol):
    """One client: its hello, then its frames until either side ends."""

    def __init__(self, make_client: MakeClient, arounds: Sequence[Around], connected: Connections) -> None:
        self._make_client = make_client
        self._arounds = arounds
        self._connected = connected
        self._cutter = Cutter()
        self._early: list[bytes] = []
        self._client: Client | None = None
        self._ended = asyncio.Event()
        self.serving: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the hello."""
        self.transport = cast("asyncio.Transport", transport)
        self._connected.add(self)
        if self._connected.closing:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Detach the client's calls; they go on."""
        self._connected.discard(self)
        self._ended.set()
        if self._client is not None:
            self._client.detach()
            self._client = None

    def data_received(self, data: bytes) -> None:
        """Act on whole messages; what is none ends the connection."""
        self._take_all(self._cutter.cut(data))

    def eof_received(self) -> bool:
        """End: a client that sends no more wants no more."""
        return False

    def close(self) -> None:
        """End the connection."""
        if self.transport is not None:
            self.transport.close()

    def _take_all(self, messages: Iterable[bytes]) -> None:
        try:
            for message in messages:
                self._take(message)
        except (FrameTooLarge, DecodeError):
            self.close()

    def _take(self, message: bytes) -> None:
        if self._client is not None:
            found = read_input(message) if len(message) >= LEAST else None
            if found is not None:
                self._client.take_input(*found)
            else:
                self._client.take_all(pb.MultiplexRequest.FromString(message))
        elif self.serving is None:
            hello = pb.SocketHello.FromString(message)
            self.serving = asyncio.get_running_loop().create_task(self._serve(hello), name="call-socket")
        else:
            self._early.append(message)

    async def _serve(self, hello: pb.SocketHello) -> None:
        try:
            _check_protocol(hello.protocol)
            async with AsyncExitStack() as stack:
                context = cast("Context", SocketContext(dict(hello.metadata)))
                for around in self._arounds:
                    await stack.enter_async_context(around(METHOD, context))
                self._admit()
                await self._ended.wait()
        except SandmeshError as error:
            self._refuse(error)
        except Exception:  # as the interceptor of a server: what is unexpected leaves with an id to look up
            self._refuse(unexpected(METHOD))

    def _admit(self) -> None:
        if self.transport is None or self._ended.is_set():
            return
        self._client = self._make_client(self._put)
        early, self._early = self._early, []
        self._take_all(early)

    def _put(self, relay: Relay | None, response: bytes, last_sequence: int) -> None:
        # It leaves at once: each call's window bounds how much may wait in the connection.
        if self.transport is not None:
            self.transport.write(frame(response))

    def _refuse(self, error: SandmeshError) -> None:
        if self.transport is not None:
            self.transport.write(frame(refusal("", error)))
        self.close()


def _check_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise ProtocolMismatch(f"call sockets speak protocol {PROTOCOL} here, not {protocol}")


@asynccontextmanager
async def open_call_sockets(
    addresses: Sequence[str], make_client: MakeClient, arounds: Sequence[Around]
) -> AsyncGenerator[None]:
    """Serve a call socket beside each unix socket among the addresses until the block ends."""
    loop = asyncio.get_running_loop()
    connected = Connections()
    paths = [Path(f"{address.removeprefix('unix://')}.calls") for address in addresses if address.startswith("unix:")]
    servers: list[Any] = []
    try:
        for path in paths:
            server = await loop.create_unix_server(lambda: CallSocket(make_client, arounds, connected), path)
            servers.append(server)
            path.chmod(0o600)
        yield
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
        connected.closing = True
        # asyncio forgets a connection that it accepted but has not made when its server closes: let it make them.
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        await _end(list(connected))


async def _end(connections: list[CallSocket]) -> None:
    for connection in connections:
        connection.close()
        if connection.transport is not None and connection.serving is None:
            connection.transport.abort()
    serving = [connection.serving for connection in connections if connection.serving is not None]
    if serving:
        _, late = await asyncio.wait(serving, timeout=0.5)
        for task in late:
            task.cancel()
        await asyncio.wait(serving)
