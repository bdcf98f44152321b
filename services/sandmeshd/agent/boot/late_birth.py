"""The birth of an agent that was started before anybody knew which sandbox it would be: agent.proto, Birth.

It has the hash of the mesh's certificate and no secret. Over each connection it begins TLS as the client, whichever end
dialled: so the mesh proves its key in a handshake that is fresh, and only this process can read what follows. Until
then the zygote that user code will be forked from waits unconfigured.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, cast
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.errors import InvalidArgument, SandmeshError, WrongState, to_detail
from sandmesh.shared import frames

_HANDSHAKE_SECONDS: Final = 10.0
_MOST_CONNECTIONS: Final = 16
_HTTP: Final = b"GET "
_EMPTY: Final = frames.pack(b"")
_DEFAULT_SECONDS: Final = 600.0


async def await_birth(config: pb.AgentConfig, on_listening: Callable[[], None]) -> pb.AgentConfig:
    """Wait for the configuration at the address that `config` names; `on_listening` is called once it listens.

    Raises:
        OSError: The address cannot be bound, or no peer came in time.
    """
    birth = config.birth
    seconds = birth.timeout.ToNanoseconds() / 1e9 if birth.HasField("timeout") else _DEFAULT_SECONDS
    loop = asyncio.get_running_loop()
    waiting = _BirthState(_load_ssl(), birth.certificate_sha256, config.listen)
    parts = urlsplit(config.listen)
    if parts.scheme == "unix":
        server = await loop.create_unix_server(waiting.connect, parts.path)
    elif parts.scheme == "tcp":
        server = await loop.create_server(waiting.connect, parts.hostname, parts.port or 0)
    else:
        raise OSError(f"no birth can come at {config.listen!r}: use unix:///path or tcp://host:port")
    try:
        on_listening()
        async with asyncio.timeout(seconds):
            return await waiting.born
    except TimeoutError:
        raise OSError(f"no configuration came within {seconds:g} s: the agent ends") from None
    finally:
        server.close()
        waiting.close()


def _load_ssl() -> Any:
    # The agent runs without it otherwise: see main.
    modules: dict[str, Any] = cast("dict[str, Any]", sys.modules)
    for name in ("ssl", "_hashlib"):
        if name in modules and modules[name] is None:
            del modules[name]
    return import_module("ssl")


class _BirthState:
    """What the connections share: who may give birth, and whether it was done."""

    def __init__(self, ssl: Any, pin: str, listen: str) -> None:
        self.ssl = ssl
        self.pin = pin
        self.born: asyncio.Future[pb.AgentConfig] = asyncio.get_running_loop().create_future()
        self._listen = listen
        self._open: set[_BirthConnection] = set()
        self._over = False
        # No authority signs the mesh's certificate: the pin is what holds, and TLS proves the key.
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3

    def connect(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _BirthConnection(self)

    def add(self, connection: _BirthConnection) -> bool:
        """Keep a connection; return False where there are too many, or the birth is over."""
        if self._over or len(self._open) >= _MOST_CONNECTIONS:
            return False
        self._open.add(connection)
        return True

    def discard(self, connection: _BirthConnection) -> None:
        """Forget a connection."""
        self._open.discard(connection)

    def close(self) -> None:
        """Close all connections, and those that were accepted meanwhile."""
        self._over = True
        for connection in list(self._open):
            connection.close()

    def take(self, request: pb.BirthRequest) -> pb.AgentConfig:
        """Return the configuration of a request that is accepted.

        Raises:
            SandmeshError: It is refused.
        """
        if self.born.done():
            raise WrongState("the agent was born already", {"state": "BORN"})
        if request.expire_unix_seconds <= time.time():
            raise InvalidArgument("the configuration has expired: is the clock of the mesh, or of the sandbox, wrong?")
        config = request.config
        if not config.sandbox_id or not config.agent_token or config.HasField("birth"):
            raise InvalidArgument("the configuration needs sandbox_id and agent_token, and no birth")
        config.listen = config.listen or self._listen
        return config


class _BirthConnection(asyncio.Protocol):
    """One connection: an empty frame or a request of HTTP, then TLS within it, a request and its response."""

    def __init__(self, waiting: _BirthState) -> None:
        self._waiting = waiting
        self._transport: asyncio.Transport | None = None
        self._begun = bytearray()
        self._upgraded = False
        self._incoming, self._outgoing = waiting.ssl.MemoryBIO(), waiting.ssl.MemoryBIO()
        self._tls: Any = None
        self._is_known = False
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)
        self._timer = asyncio.get_running_loop().call_later(_HANDSHAKE_SECONDS, self.close)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes; after an upgrade, for those in messages."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._upgraded and not self._waiting.add(self):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._timer.cancel()
        self._waiting.discard(self)

    def close(self) -> None:
        """Close once what was written is sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Read how the connection begins, then TLS."""
        if self._tls is not None:
            self._read(data)
            return
        self._begun += data
        begun = bytes(self._begun)
        if len(begun) < len(_EMPTY):
            return
        self._begun.clear()
        if begun.startswith(_EMPTY):
            self._tls = self._waiting.context.wrap_bio(self._incoming, self._outgoing, server_side=False)
            self._read(begun[len(_EMPTY) :])
        elif begun.startswith(_HTTP) and not self._upgraded and self._transport is not None:
            self._upgraded = True
            request = import_module("sandmeshd.agent.link.upgrade").HttpRequest(self._transport, self)
            self._transport.set_protocol(request)
            request.data_received(begun)
        else:
            self.close()

    def _read(self, data: bytes) -> None:
        ssl = self._waiting.ssl
        self._incoming.write(data)
        try:
            if not self._is_known:
                self._tls.do_handshake()
                self._check_mesh()
            while plain := self._tls.read(1 << 16):
                for message in self._buffer.feed(plain):
                    self._answer(message)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, ConnectionError, frames.FrameTooLarge):
            self._flush()
            self.close()
        self._flush()

    def _check_mesh(self) -> None:
        certificate = self._tls.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), self._waiting.pin):
            raise ConnectionError("this is another mesh")
        self._is_known = True

    def _answer(self, message: bytes) -> None:
        response, config = pb.BirthResponse(), None
        try:
            config = self._waiting.take(pb.BirthRequest.FromString(message))
        except DecodeError:
            response.error.CopyFrom(to_detail(InvalidArgument("the request cannot be read")))
        except SandmeshError as error:
            response.error.CopyFrom(to_detail(error))
        self._tls.write(frames.pack(response.SerializeToString()))
        self._flush()
        self.close()
        if config is not None:
            self._waiting.born.set_result(config)

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
