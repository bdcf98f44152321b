"""Links in binary messages of a WebSocket, to agents that are reached through a cloud's gateway or an HTTPS proxy.

Such a gateway ends a connection at its own time-out. That is the loss of a link like any other: a follower of calls
over it attaches to them again over the next.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping
from typing import Final, TypeVar, cast

from sandmesh.shared.websocket import (
    HEAD_END,
    LINK_SUBPROTOCOL,
    HeadBuffer,
    ProtocolError,
    WebSocketStream,
    accept_key,
    read_head,
)
from sandmeshd.agentlink.addresses import AgentAddress

P = TypeVar("P", bound=asyncio.Protocol)

PING_SECONDS: Final = 20.0
"""After how much silence a ping is sent: proxies end connections that are quiet for a minute. After twice it, none
having been answered, the connection is lost."""


async def open_websocket(address: AgentAddress, link: P, ping_seconds: float = PING_SECONDS) -> P:
    """Connect a link, or another protocol, through the WebSocket at an address, whose certificate fits its host.

    After `ping_seconds` of silence a ping is sent.

    Raises:
        OSError: Nothing answers there, its certificate does not fit, or what answers is not an agent's address.
    """
    loop = asyncio.get_running_loop()
    transport, upgrade = await loop.create_connection(
        lambda: _Upgrade(address, link, ping_seconds), address.host, address.port, ssl=address.tls
    )
    try:
        await upgrade.done
    except BaseException:
        transport.abort()
        raise
    return link


class _Upgrade(asyncio.Protocol):
    """Requests the WebSocket, then passes on what its messages carry."""

    def __init__(self, address: AgentAddress, link: asyncio.Protocol, ping_seconds: float) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the link is connected."""
        self._address = address
        self._link = link
        self._ping_seconds = ping_seconds
        self._key = base64.b64encode(os.urandom(16)).decode()
        self._head = HeadBuffer()
        self._transport: asyncio.Transport | None = None
        self._stream: WebSocketStream | None = None
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast("asyncio.Transport", transport)
        address = self._address
        host = f"[{address.host}]" if ":" in address.host else address.host
        lines = [
            f"GET {address.target} HTTP/1.1",
            f"Host: {host}" + ("" if address.port == 443 else f":{address.port}"),
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {self._key}",
            f"Sec-WebSocket-Protocol: {LINK_SUBPROTOCOL}",
        ]
        if address.affinity is not None:
            lines.append(": ".join(address.affinity))
        self._transport.write("\r\n".join(lines).encode() + HEAD_END)

    def data_received(self, data: bytes) -> None:
        """Read the response, then messages."""
        if self._stream is not None:
            self._heard = asyncio.get_running_loop().time()
            self._stream.feed(data)
            return
        try:
            message = self._head.feed(data)
        except ProtocolError as error:
            self._fail(str(error))
            return
        if message is not None:
            self._read_response(message[0])
            if message[1] and self._stream is not None:
                self._stream.feed(message[1])

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss of the connection on to the link, or report why there is none."""
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            self._link.connection_lost(exc)
        else:
            self._fail(str(exc or "it closed the connection"))

    def pause_writing(self) -> None:
        """Pause the link."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Resume the link."""
        self._link.resume_writing()

    def _read_response(self, head: bytes) -> None:
        try:
            first, headers = read_head(head)
        except ProtocolError as error:
            self._fail(str(error))
            return
        status = first.partition(" ")[2]
        if not status.startswith("101"):
            self._fail(f"it answered {status or first!r}, not 101: does a proxy in between pass on WebSockets?")
        elif not self._is_agent(headers):
            self._fail("it upgraded to something else than a link: is the path that of an agent?")
        elif self._transport is not None and not self.done.done():
            self._stream = WebSocketStream(self._transport, self._link, is_client=True)
            self._link.connection_made(self._stream)
            self._heard = asyncio.get_running_loop().time()
            self._timer = asyncio.get_running_loop().call_later(self._ping_seconds, self._ping)
            self.done.set_result(None)

    def _is_agent(self, headers: Mapping[str, str]) -> bool:
        accepted = headers.get("sec-websocket-accept") == accept_key(self._key)
        return accepted and headers.get("sec-websocket-protocol") == LINK_SUBPROTOCOL

    def _fail(self, reason: str) -> None:
        if not self.done.done():
            message = f"no WebSocket to an agent at {self._address.host}:{self._address.port}: {reason}"
            self.done.set_exception(ConnectionError(message))
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()

    def _ping(self) -> None:
        if self._stream is None or self._transport is None:
            return
        loop = asyncio.get_running_loop()
        silent = loop.time() - self._heard
        if silent >= 2 * self._ping_seconds:
            self._transport.abort()
            return
        if silent >= self._ping_seconds / 2:
            self._stream.ping()
        self._timer = loop.call_later(self._ping_seconds, self._ping)
