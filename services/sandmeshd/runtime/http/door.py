"""A listening socket that strangers cannot keep closed to others: it accepts so many connections, and no idle ones.

aiohttp's own sites accept without end, and wait for an hour for the first request of a connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from aiohttp import web

from sandmeshd.runtime.addresses import peer_network
from sandmeshd.runtime.http.grpc_pipe import PREFACE, GrpcPipe
from sandmeshd.runtime.processes.descriptors import PEERS_PART, connections_allowed

HANDSHAKE_SECONDS: Final = 10.0
HEAD_SECONDS: Final = 20.0
"""How long the first head of a connection may take."""
IDLE_SECONDS: Final = 75.0
"""How long a connection may take until its next request."""
BACKLOG: Final = 1024
RETRY_SECONDS: Final = 0.1


class ConnectionListener:
    """Accepts the connections of one address for an application's server, within its limits."""

    def __init__(
        self, server: web.Server, options: Mapping[str, Any], tls: ssl.SSLContext | None, grpc: str = ""
    ) -> None:
        self._server = server
        self._options = options
        self._tls = tls
        self._grpc = grpc if tls is None else ""
        """Where clients of gRPC, which may know only this address, are carried; empty: nowhere."""
        self._by_peer: Counter[str] = Counter()
        self._most = connections_allowed()
        self._accepting: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()

    def listen(self, host: str, port: int, *, shared: bool) -> tuple[str, int]:
        """Listen, and return the address with the port that was chosen.

        Raises:
            OSError: It cannot be listened at.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shared)
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(listener))
        bound: tuple[str, int] = listener.getsockname()[:2]
        return bound

    async def close(self) -> None:
        """Accept no more."""
        tasks = {task for task in (self._accepting, *self._opening) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, address = await loop.sock_accept(listener)
                except OSError:
                    # There are no descriptors, or the peer has gone already.
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._admit(connection, peer_network(str(address[0])))

    def _admit(self, connection: socket.socket, peer: str) -> None:
        if self._by_peer.total() >= self._most or self._by_peer[peer] >= self._most_of(peer):
            connection.close()
            return
        self._by_peer[peer] += 1
        task = asyncio.create_task(self._open(connection, peer))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _most_of(self, peer: str) -> int:
        return self._most // PEERS_PART if peer else self._most

    async def _open(self, connection: socket.socket, peer: str) -> None:
        made = _Arrival(self._server, self._options, lambda: self._leave(peer), self._grpc)
        loop, limit = asyncio.get_running_loop(), HANDSHAKE_SECONDS if self._tls else None
        with suppress(OSError):
            # A handshake that fails or takes too long is not for the log: strangers cause it.
            await loop.connect_accepted_socket(lambda: made, connection, ssl=self._tls, ssl_handshake_timeout=limit)
        if not made.was_made:
            connection.close()
            self._leave(peer)

    def _leave(self, peer: str) -> None:
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]


class _Arrival(asyncio.Protocol):
    """A connection of which only its opening says what is spoken on it."""

    def __init__(self, server: web.Server, options: Mapping[str, Any], ended: Callable[[], None], grpc: str) -> None:
        self._server = server
        self._options = options
        self._ended = ended
        self._grpc = grpc
        self._begun = b""
        self._limit: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.was_made = False
        """Whether the connection was ever open; its end is noted then."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it to what speaks the protocol that was agreed on, without TLS HTTP/1.1 or, by its first bytes, gRPC."""
        self.was_made = True
        self._transport = cast("asyncio.Transport", transport)
        if not self._grpc:
            self._hand_over(transport)
            return
        self._limit = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Read until the first bytes tell the protocol."""
        self._begun += data
        transport = self._transport
        if transport is None or (len(self._begun) < len(PREFACE) and PREFACE.startswith(self._begun)):
            return
        self._cancel_limit()
        if self._begun.startswith(PREFACE):
            pipe = GrpcPipe(self._grpc, self._ended)
            transport.set_protocol(pipe)
            pipe.connection_made(transport)
            pipe.begin(self._begun)
        else:
            self._hand_over(transport).data_received(self._begun)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Note the end of a connection that told no protocol."""
        del exc
        self._cancel_limit()
        self._ended()

    def _cancel_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _hand_over(self, transport: asyncio.BaseTransport) -> asyncio.Protocol:
        tls = transport.get_extra_info("ssl_object")
        spoken: asyncio.Protocol = _Connection(self._server, self._options, self._ended)
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            # Few listeners offer it.
            from sandmeshd.runtime.http.h2_connection import Http2Connection  # noqa: PLC0415

            spoken = Http2Connection(self._handler, IDLE_SECONDS, self._ended)
        cast("asyncio.Transport", transport).set_protocol(spoken)
        spoken.connection_made(transport)
        return spoken

    def _handler(self) -> web.RequestHandler:
        return web.RequestHandler(self._server, loop=asyncio.get_running_loop(), **self._options)


class _Connection(web.RequestHandler):
    """A connection that has to bring a request in time, and whose end is noted."""

    __slots__ = ("_ended", "_head_limit")

    def __init__(self, server: web.Server, options: Mapping[str, Any], ended: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, keepalive_timeout=IDLE_SECONDS, **options)
        self._ended = ended
        self._head_limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open it."""
        super().connection_made(transport)
        self._head_limit = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._limit_head)

    def _limit_head(self) -> None:
        if not self._request_count:
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Close it."""
        if self._head_limit is not None:
            self._head_limit.cancel()
        super().connection_lost(exc)
        self._ended()
