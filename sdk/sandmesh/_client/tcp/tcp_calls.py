"""The stream of all calls over TCP and TLS: gRPC's Multiplex, which the event loop itself reads and writes.

gRPC's own client hands each message from one thread to another; without that a call takes a fraction of its time.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError

from sandmesh._calls.local_socket import DirectStream, Metadata
from sandmesh._client.addresses import DialTarget
from sandmesh._client.heartbeat import Heartbeat, silent
from sandmesh._client.tcp.hpack import HpackError
from sandmesh._client.tcp.http2 import Http2Error, Http2Stream, StreamStatus, is_plain
from sandmesh._client.tcp.tls_bytes import TlsBytes
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import MeshUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

CONNECT_SECONDS = 2.0
"""How long it may take until the mesh has shown that it speaks HTTP/2."""
NEXT_ADDRESS_SECONDS = 0.25
"""After which the next address of a name is tried beside the one that has not answered."""
METHOD = f"/{pb.DESCRIPTOR.services_by_name['CallService'].full_name}/Multiplex"
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_ALPN = "h2"
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""What a name translation on the way does not forget, and what finds out that a mesh has vanished without a word."""


class TcpCallStream(DirectStream):
    """One connection that carries one stream; it ends when the other side is silent while there are calls."""

    def __init__(
        self, http2: Http2Stream, busy: Callable[[], bool], on_silent: Callable[[], None], tls: TlsBytes | None = None
    ) -> None:
        """`on_silent` is called where nothing is heard while `busy`."""
        super().__init__()
        self._http2 = http2
        self._tls = tls
        self._on_silent = on_silent
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._greeted = asyncio.Event()
        self._busy = busy
        self._heart: Heartbeat | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request, with TLS once the other side has shown who it is."""
        self._transport = cast("asyncio.Transport", transport)
        _keep_alive(transport.get_extra_info("socket"))
        if self._tls is None:
            self._begin()
        else:
            self._shake(self._tls, b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake all that waits."""
        super().connection_lost(exc)
        self._greeted.set()
        if self._heart is not None:
            self._heart.stop()

    def data_received(self, data: bytes) -> None:
        """Deliver the responses among the bytes received, and answer what HTTP/2 wants answered."""
        try:
            for message in self._http2.feed(self._plain(data)):
                if self._heart is not None:
                    self._heart.hear()
                self.handle(message)
        except (Http2Error, HpackError, DecodeError, OSError) as error:
            self._fail(MeshUnavailable(f"the peer is not a gateway: {error}"))
            return
        except Exception as error:
            self._fail(error)  # a subscriber's defect is reported by who reads
            return
        if self._http2.greeted:
            self._greeted.set()
        self._send(self._http2.output())
        if self._http2.status is not None:
            self.error = self.error or _failure(self._http2.status)
            self.cancel()  # in TLS a polite end would wait for the mesh's, whose connection goes on

    def pause_writing(self) -> None:
        """Block `write`."""
        self._paused = True
        self._check_room()

    def resume_writing(self) -> None:
        """Release `write`."""
        self._paused = False
        self._check_room()

    def write_now(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request as `write` does, however much waits already."""
        self._send(self._http2.send(request if isinstance(request, bytes) else request.SerializeToString()))

    async def done_writing(self) -> None:
        """Announce that no request follows."""
        self._send(self._http2.end())

    def cancel(self) -> bool:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()
        return True

    async def greeted(self) -> bool:
        """Wait for the mesh's first words, and return whether they were HTTP/2; without them the connection ends."""
        try:
            await self._greeted.wait()
        finally:
            usable = self._http2.greeted and not self.ended
            if not usable:
                self.cancel()
        return usable

    def _plain(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        return self._tls.decrypt() if self._shake(self._tls, data) else b""

    def _shake(self, tls: TlsBytes, data: bytes) -> bool:
        """Take bytes of TLS, and return whether its handshake is over."""
        over = tls.shake(data)
        if self._heart is None and over:
            if tls.protocol != _ALPN:
                raise Http2Error("it does not speak HTTP/2")
            self._begin()
        elif self._transport is not None and (own := tls.encrypt(b"")):
            self._transport.write(own)
        return over

    def _begin(self) -> None:
        self._heart = Heartbeat(self._busy, self._ask, self._die)
        self._send(self._http2.begin())

    def _send(self, data: bytes) -> None:
        if data and self._transport is not None and not self.ended:
            self._transport.write(data if self._tls is None else self._tls.encrypt(data))
        self._check_room()

    def _check_room(self) -> None:
        if self.ended or not (self._paused or self._http2.blocked):
            self.writable.set()
        else:
            self.writable.clear()

    def _ask(self) -> None:
        # Where there is no room the mesh has something to answer already.
        if self.writable.is_set():
            self.write_now(b"")

    def _die(self) -> None:
        self._on_silent()
        self._fail(silent())

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.cancel()


async def connect(
    target: DialTarget, metadata: Metadata, busy: Callable[[], bool], on_silent: Callable[[], None]
) -> TcpCallStream | None:
    """Connect to a gateway by TCP; return None where that fails: gRPC's own client can do more, and says why it cannot.

    With TLS the certificate is checked as gRPC's client does, and nothing is sent before.
    """
    parts = urlsplit(f"//{target.name}")
    scheme = "https" if target.secure else "http"
    fields = (
        (":method", "POST"),
        (":scheme", scheme),
        (":path", METHOD),
        (":authority", target.name),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "sandmesh-python"),
        *metadata,
    )
    if not is_plain(fields) or (target.proxied and any(os.environ.get(name) for name in _PROXIES)):
        return None
    host, loop = parts.hostname or "", asyncio.get_running_loop()
    # Other loops, as uvloop's, do not take it.
    racing: dict[str, Any] = (
        {"happy_eyeballs_delay": NEXT_ADDRESS_SECONDS} if isinstance(loop, asyncio.BaseEventLoop) else {}
    )
    with suppress(OSError, ValueError, TimeoutError):
        tls = TlsBytes(_context(target.certificates), host) if target.secure else None
        stream = TcpCallStream(Http2Stream(fields), busy, on_silent, tls)
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.create_connection(lambda: stream, host, parts.port or 0, **racing)
            if await stream.greeted():
                return stream
    return None


@functools.lru_cache(maxsize=8)
def _context(certificates: bytes | None) -> SSLContext:
    import ssl  # noqa: PLC0415 - few need it

    context = ssl.create_default_context(cadata=certificates.decode() if certificates else None)
    context.set_alpn_protocols([_ALPN])
    return context


def _keep_alive(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):  # not every system has each of them
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _failure(status: StreamStatus) -> Exception | None:
    if status.code is grpc.StatusCode.OK:
        return None
    trailing = grpc.aio.Metadata(*status.metadata)
    return grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), trailing, details=status.message)
