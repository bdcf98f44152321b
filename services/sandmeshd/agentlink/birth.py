"""The birth of an agent that waits for its configuration: agent.proto, Birth.

Within whatever leads to the agent the mesh is the server of a TLS connection, which only the holder of its key can be,
and which is fresh: a recording of it is useless, and it cannot be read in between. That it is
the agent that it means, the mesh knows only by the address: a pin, or a cloud's gateway and the header of one sandbox.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Final, cast

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.errors import SandboxLost, from_detail
from sandmesh.shared import frames
from sandmeshd.agentlink.addresses import read_address
from sandmeshd.agentlink.websocket import open_websocket

EXPIRY_SECONDS: Final = 300
_EMPTY: Final = frames.pack(b"")


def load_mesh_identity(path: Path) -> ssl.SSLContext:
    """Return what shows the mesh's certificate, from a file with it and its key in PEM.

    Raises:
        OSError: The file does not exist or is not valid (ssl.SSLError).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A ticket would be one more message for an agent that never comes back.
    context.num_tickets = 0
    context.load_cert_chain(path)
    return context


async def give_birth(
    endpoint: str,
    config: pb.AgentConfig,
    identity: ssl.SSLContext,
    timeout: float = 30.0,
    expiry: float = EXPIRY_SECONDS,
) -> None:
    """Send its configuration to the agent that waits at an endpoint; it then becomes that sandbox.

    The agent refuses it from `expiry` seconds from now on, by its own clock.

    Raises:
        SandboxLost: Nothing waits there: it was born already, waits for another mesh, or does not answer.
        SandmeshError: What the agent refuses the configuration with.
    """
    request = pb.BirthRequest(expire_unix_seconds=int(time.time() + expiry), config=config)
    try:
        async with asyncio.timeout(timeout):
            delivery = await _connect(endpoint, _Delivery(identity, request.SerializeToString()))
            try:
                response = await delivery.response
            finally:
                delivery.close()
    except (OSError, TimeoutError) as error:
        detail = {"detail": str(error) or "timeout"}
        raise SandboxLost(f"no agent takes the configuration of {config.sandbox_id}", detail) from None
    if response.HasField("error"):
        raise from_detail(response.error)


async def _connect(endpoint: str, delivery: _Delivery) -> _Delivery:
    loop, address = asyncio.get_running_loop(), read_address(endpoint)
    if address.path and not address.pin:
        await loop.create_unix_connection(lambda: delivery, address.path)
    elif address.target:
        await open_websocket(address, delivery)
    else:
        transport, _ = await loop.create_connection(lambda: delivery, address.host, address.port, ssl=address.tls)
        try:
            address.check(transport)
        except ConnectionError:
            transport.abort()
            raise
    return delivery


class _Delivery(asyncio.Protocol):
    """One request over one connection, in TLS."""

    def __init__(self, identity: ssl.SSLContext, request: bytes) -> None:
        self.response: asyncio.Future[pb.BirthResponse] = asyncio.get_running_loop().create_future()
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = identity.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_sent = False
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the agent answers as the client of TLS."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(_EMPTY)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, then send the request and read the response."""
        self._incoming.write(data)
        try:
            if not self._is_sent:
                self._tls.do_handshake()
                self._tls.write(frames.pack(self._request))
                self._is_sent = True
            while plain := self._tls.read(1 << 16):
                for message in self._buffer.feed(plain):
                    self.response.set_result(pb.BirthResponse.FromString(message))
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, frames.FrameTooLarge) as error:
            self._fail(str(error))
        outgoing = self._outgoing.read()
        if outgoing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(outgoing)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail, where there was no response."""
        self._fail(f"{exc or 'it closed the connection'}: it was born already, or waits for another mesh")

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def _fail(self, reason: str) -> None:
        if not self.response.done():
            self.response.set_exception(ConnectionError(reason))
