"""Sockets beside each unix socket of a gateway, where clients of its machine are spared what HTTP/2 costs.

On each of them a message has its length before it, and the first is a SocketHello, as call.proto specifies.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from google.protobuf.message import DecodeError

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import ProtocolMismatch, SandmeshError
from sandmesh.shared import frames
from sandmesh.shared.traces.context import TRACEPARENT, TRACESTATE

GRACE_SECONDS: Final = 0.5
"""How long what is under way may take when a gateway ends, as on its other sockets."""

_TURNS: Final = 4
"""Turns of the loop from a waiting connection to `connection_made`."""


class Connections(set["Peer"]):
    """The clients that are there; `closing` sends away who comes late."""

    closing = False


class Peer(asyncio.Protocol, ABC):
    """One client until either side ends; an invalid message ends the connection."""

    def __init__(self, connected: Connections) -> None:
        self._connected = connected
        self._buffer = frames.FrameBuffer(frames.MAX_SOCKET_MESSAGE)
        self._greeted = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the hello."""
        self._transport = cast("asyncio.Transport", transport)
        self._connected.add(self)
        if self._connected.closing:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._connected.discard(self)

    def data_received(self, data: bytes) -> None:
        """Check the hello, then handle whole messages."""
        try:
            for message in self._buffer.feed(data):
                if self._greeted:
                    self.handle(message)
                else:
                    self._greet(pb.SocketHello.FromString(message))
        except (frames.FrameTooLarge, DecodeError):
            self.close()

    def _greet(self, hello: pb.SocketHello) -> None:
        self._greeted = True
        if hello.protocol == frames.SOCKET_PROTOCOL:
            self.begin(hello)
        else:
            self.refuse(ProtocolMismatch(f"this socket speaks protocol {frames.SOCKET_PROTOCOL}, not {hello.protocol}"))

    def eof_received(self) -> bool:
        """End: a client that sends no more wants no more."""
        return False

    @abstractmethod
    def begin(self, hello: pb.SocketHello) -> None:
        """Serve a client that said hello."""

    def refuse(self, error: SandmeshError) -> None:
        """Send the client away with an error."""
        self.send(self.refusal(error))
        self.close()

    @abstractmethod
    def refusal(self, error: SandmeshError) -> bytes:
        """Return the message that sends the client away."""

    @abstractmethod
    def handle(self, message: bytes) -> None:
        """Handle a message.

        Raises:
            DecodeError: It is none.
        """

    def send(self, message: bytes) -> None:
        """Send a message; to a client that is gone it goes nowhere."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames.prefix(len(message)) + message)

    def close(self) -> None:
        """End the connection when what was sent has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    @abstractmethod
    async def end(self) -> None:
        """End the connection, and what is under way for it within its grace."""


class SocketContext:
    """What interceptors and servicers of unary RPCs use of a ServicerContext."""

    def __init__(self, hello: pb.SocketHello, ask: pb.SocketAsk | None = None) -> None:
        self._metadata = tuple(hello.metadata.items())
        timeout = None
        if ask is not None and ask.HasField("trace"):
            sent = ((TRACEPARENT, ask.trace.traceparent), (TRACESTATE, ask.trace.tracestate))
            self._metadata += sent
        if ask is not None and ask.HasField("timeout"):
            timeout = ask.timeout.ToMicroseconds() / 1e6
        self._ends = None if timeout is None else asyncio.get_running_loop().time() + timeout

    def peer(self) -> str:
        """Return the client's address."""
        return "unix:"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of the hello, and the trace of the RPC."""
        return self._metadata

    def time_remaining(self) -> float | None:
        """Return the seconds that the client still waits, None for no limit."""
        return None if self._ends is None else max(0.0, self._ends - asyncio.get_running_loop().time())


@dataclass(frozen=True)
class SocketKind:
    """One kind of local socket: what follows the gateway's path in its name, and what serves a client."""

    suffix: str
    make_peer: Callable[[Connections], Peer]


@asynccontextmanager
async def open_local_sockets(addresses: Sequence[str], kinds: Sequence[SocketKind]) -> AsyncGenerator[None]:
    """Serve a socket of each kind beside each unix socket among the addresses until the block ends."""
    loop = asyncio.get_running_loop()
    connected = Connections()
    paths = [address.removeprefix("unix://") for address in addresses if address.startswith("unix:")]
    sockets = {Path(f"{path}{kind.suffix}"): kind for path in paths for kind in kinds}
    servers: list[Any] = []
    try:
        for path, kind in sockets.items():
            servers.append(await loop.create_unix_server(partial(kind.make_peer, connected), path))
            path.chmod(0o600)
        yield
    finally:
        for path in sockets:
            path.unlink(missing_ok=True)
        connected.closing = True
        # asyncio forgets a connection that it accepted but has not made when its server closes: let it make them.
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        await asyncio.gather(*(peer.end() for peer in list(connected)))


async def settled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for tasks within the grace time, then cancel the rest."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.wait(tasks)
