"""Ports and the like that URLs of the gateway lead to: which are good, and the connections through them.

A connection is a call. Its input goes to the port and what the port sends is its output, so a slow side slows the other
and the call's rules hold: it is listed, cancelled and counted as any.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import CHUNK, SMALLEST_READ, Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.files.arguments import Arguments, read_arguments
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.streams import is_stopped, unless_stopped

MOST: Final = 256
_CONNECT_SECONDS: Final = 10.0
_ENDED: Final = "the port is not exposed, or no more"
_TYPES: Final = {"desktop": "gui", "mobile": "mobile"}
"""The type of sandboxes that have what a kind names; all others are the browser's."""
_RETRIES: Final = 10
_RETRY_PAUSE_SECONDS: Final = 0.1

Dial: TypeAlias = Callable[[str], Coroutine[Any, Any, socket.socket]]
"""Opens a connection of a viewer that does not block; a ToolFailure says that what it leads to could not be started."""


@dataclass(frozen=True)
class Expose(Arguments):
    """Makes a port, or what else a kind names, reachable through the gateway until a time in seconds since 1970."""

    tool: ClassVar[str] = "ports.expose"
    exposure_id: str
    port: int
    expires: int
    kind: str = ""
    token_id: str = ""


@dataclass(frozen=True)
class ListExposed(Arguments):
    """Lists what is reachable."""

    tool: ClassVar[str] = "ports.list"


@dataclass(frozen=True)
class Revoke(Arguments):
    """Ends it; what is not there has ended."""

    tool: ClassVar[str] = "ports.revoke"
    exposure_id: str


@dataclass(frozen=True)
class Check(Arguments):
    """Checks that it is reachable, and names the mesh's token that it was made with."""

    tool: ClassVar[str] = "ports.check"
    exposure_id: str


@dataclass(frozen=True)
class Connect(Arguments):
    """A connection to an exposed port."""

    tool: ClassVar[str] = "ports.connect"
    exposure_id: str
    viewer: str = ""


@dataclass
class _Exposure:
    port: int
    expires: int
    kind: str
    token_id: str
    timer: asyncio.TimerHandle
    calls: set[RunningCall] = field(default_factory=set[RunningCall])
    unused: asyncio.Future[None] | None = None
    """Done with the last call, where somebody waits for that."""

    @property
    def name(self) -> str:
        """What it leads to."""
        return self.kind or f"port {self.port}"


class Exposures:
    """The exposed ports of a sandbox."""

    def __init__(self) -> None:
        self._exposed: dict[str, _Exposure] = {}
        self._dials: dict[str, Dial] = {}

    def add(self, kind: str, dial: Dial) -> None:
        """Add what can be exposed beside ports."""
        self._dials[kind] = dial

    def add_port(self, kind: str, find: Callable[[], Awaitable[int]]) -> None:
        """Add a port that is known only when it is asked for."""

        async def dial(viewer: str) -> socket.socket:
            del viewer
            # A server that has just died may be found for a moment more.
            for _ in range(_RETRIES):
                with suppress(ConnectionRefusedError):
                    return await _dial_port(await find())
                await asyncio.sleep(_RETRY_PAUSE_SECONDS)
            return await _dial_port(await find())

        self.add(kind, dial)

    def services(self) -> Mapping[str, Service]:
        """Return the handler of each service."""
        runs: dict[type[Arguments], Any] = {
            Expose: self._expose,
            ListExposed: self._list,
            Revoke: self._revoke,
            Check: self._check,
            Connect: self._connect,
        }
        return {cls.tool: _service(cls, run) for cls, run in runs.items()}

    async def _expose(self, request: Expose, call: RunningCall) -> Outcome:
        call.started()
        left = request.expires - time.time()
        if len(self._exposed) >= MOST:
            return _refused(errno.ENOSPC, f"{MOST} ports are exposed: revoke some")
        if request.kind and request.kind not in self._dials:
            wanted = _TYPES.get(request.kind.removesuffix("-readonly"), "browser")
            missing = f"the sandbox's type has nothing of the kind {request.kind}: use the type {wanted}"
            return _refused(errno.ENOTSUP, missing)
        timer = asyncio.get_running_loop().call_later(max(0.0, left), self._end, request.exposure_id)
        self._exposed[request.exposure_id] = _Exposure(
            request.port, request.expires, request.kind, request.token_id, timer
        )
        return Outcome()

    async def _list(self, _: ListExposed, call: RunningCall) -> Outcome:
        call.started()
        ports = [
            {
                "exposure_id": name,
                "port": one.port,
                "expires": one.expires,
                "kind": one.kind,
                "token_id": one.token_id,
                "connections": len(one.calls),
            }
            for name, one in self._exposed.items()
        ]
        return Outcome(structured=json.dumps({"ports": ports}).encode())

    async def _revoke(self, request: Revoke, call: RunningCall) -> Outcome:
        call.started()
        exposure = self._exposed.get(request.exposure_id)
        self._end(request.exposure_id)
        if exposure is not None and exposure.calls:
            exposure.unused = asyncio.get_running_loop().create_future()
            await exposure.unused
        return Outcome()

    def _end(self, exposure_id: str) -> None:
        exposure = self._exposed.pop(exposure_id, None)
        if exposure is not None:
            exposure.timer.cancel()
            for call in list(exposure.calls):
                call.stop(pb.END_REASON_CANCELLED)

    async def _check(self, request: Check, call: RunningCall) -> Outcome:
        call.started()
        exposure = self._exposed.get(request.exposure_id)
        if exposure is None:
            return _refused(errno.ENOENT, _ENDED)
        return Outcome(structured=json.dumps({"token_id": exposure.token_id}).encode())

    async def _connect(self, request: Connect, call: RunningCall) -> Outcome:
        exposure = self._exposed.get(request.exposure_id)
        if exposure is None:
            return _refused(errno.ENOENT, _ENDED)
        if call.input is None:
            raise InvalidArgument("a connection's bytes come as input: start the call with takes_input")
        exposure.calls.add(call)
        try:
            dial = self._dials[exposure.kind](request.viewer) if exposure.kind else _dial_port(exposure.port)
            peer = await unless_stopped(call, dial)
            with peer:
                call.started()
                call.input.open_socket(peer.fileno())
                await unless_stopped(call, _copy(peer, call))
        except OSError as error:
            return _refused(error.errno or errno.EIO, f"{exposure.name}: {error.strerror or error}")
        except ToolFailure as failure:
            return _refused(errno.EIO, str(failure))
        except CallStopped:
            return Outcome(is_error=True, reason=call.stop_reason or pb.END_REASON_CANCELLED)
        finally:
            exposure.calls.discard(call)
            if exposure.unused is not None and not (exposure.calls or exposure.unused.done()):
                exposure.unused.set_result(None)
        return Outcome()


def _service(cls: type[Arguments], run: Any) -> Service:
    return Service(lambda data: read_arguments(cls, data), run)


def _refused(number: int, message: str) -> Outcome:
    return Outcome(is_error=True, message=message, structured=json.dumps({"errno": number}).encode())


async def _dial_port(port: int) -> socket.socket:
    """Connect to a port of the sandbox's loopback, by either family: servers of Node.js listen only at ::1."""
    refused: OSError = ConnectionRefusedError(errno.ECONNREFUSED, "nothing listens there")
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            peer = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            continue
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(peer, (host, port))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError:
            peer.close()
            refused = TimeoutError(errno.ETIMEDOUT, "it does not answer")
        except OSError:
            peer.close()
        else:
            return peer
    raise refused


async def _copy(peer: socket.socket, call: RunningCall) -> None:
    loop = asyncio.get_running_loop()
    while not is_stopped(call):
        while call.room < SMALLEST_READ:
            await call.roomier()
        data = await loop.sock_recv(peer, min(CHUNK, call.room))
        if not data:
            return
        call.output(pb.STREAM_STDOUT, data)
