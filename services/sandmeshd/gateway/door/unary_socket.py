"""Unary RPCs without HTTP/2 over a local socket. SocketAsk in call.proto specifies it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import grpc

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import DeadlineExceeded, MeshUnavailable, MethodNotFound, SandmeshError, to_detail
from sandmesh.shared.wire_errors import from_rpc_error
from sandmeshd.gateway.door.local_sockets import Connections, Peer, SocketContext, SocketKind, settled
from sandmeshd.runtime.rpc.handlers import HandlerCollector
from sandmeshd.runtime.rpc.interceptors import Around, nested, unexpected, within
from sandmeshd.runtime.rpc.server import ServiceRegistration

Answer = Callable[[bytes, SocketContext], Awaitable[bytes]]


class Rpcs:
    """The unary RPCs of a server, each within its arounds; made at first use and kept."""

    def __init__(self, services: Sequence[ServiceRegistration], arounds: Sequence[Around]) -> None:
        self._handlers = HandlerCollector(services)
        self._around = nested(arounds)
        self._made: dict[str, Answer] = {}

    async def answer(self, method: str, request: bytes, context: SocketContext) -> bytes:
        """Answer a serialized request as the server would.

        Raises:
            SandmeshError: What the RPC fails with, whatever it is.
        """
        try:
            found = self._made.get(method)
            if found is None:
                # Only what exists is kept: a client cannot fill this by making names up.
                found = self._made[method] = self._find(method)
            async with asyncio.timeout(context.time_remaining()):
                return await found(request, context)
        except SandmeshError:
            raise
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        except TimeoutError:
            raise DeadlineExceeded(f"{method} did not answer in time", changed=True) from None
        except Exception:  # as the interceptor of a server: what is unexpected leaves with an id to look up
            raise unexpected(method) from None

    def _find(self, method: str) -> Answer:
        handler = self._handlers.find(method)
        if handler.unary_unary is None:
            raise MethodNotFound(f"{method} is a stream: use gRPC for it", {"method": method})
        wrapped: Any = within(handler, self._around, method)

        async def answer(request: bytes, context: SocketContext) -> bytes:
            message = wrapped.request_deserializer(request) if wrapped.request_deserializer else request
            response = await wrapped.unary_unary(message, context)
            serialized = wrapped.response_serializer(response) if wrapped.response_serializer else response
            return cast("bytes", serialized)

        return answer


class UnarySocketPeer(Peer):
    """One client: its hello, then its requests."""

    def __init__(self, connected: Connections, rpcs: Rpcs) -> None:
        super().__init__(connected)
        self._rpcs = rpcs
        self._hello = pb.SocketHello()
        self._open: dict[int, asyncio.Task[None]] = {}
        self._ending = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the RPCs whose client is gone."""
        super().connection_lost(exc)
        for task in self._open.values():
            task.cancel()

    def begin(self, hello: pb.SocketHello) -> None:
        """Keep the hello, whose metadata goes with each RPC."""
        self._hello = hello

    def handle(self, message: bytes) -> None:
        """Begin or end an RPC."""
        request = pb.SocketAsk.FromString(message)
        found = self._open.get(request.id)
        if request.cancel:
            if found is not None:
                found.cancel()
        elif request.id == 0 or found is not None:
            self.close()
        elif self._ending:
            self._respond(pb.SocketAnswer(id=request.id, error=to_detail(_ending())))
        else:
            self._begin(request)

    def refusal(self, error: SandmeshError) -> bytes:
        """Return a response to no RPC."""
        return pb.SocketAnswer(error=to_detail(error)).SerializeToString()

    async def end(self) -> None:
        """End the connection once what is under way was answered, or its grace has passed."""
        self._ending = True
        await settled(list(self._open.values()))
        self.close()

    def _begin(self, ask: pb.SocketAsk) -> None:
        working = self._answer(ask, SocketContext(self._hello, ask))
        self._open[ask.id] = asyncio.get_running_loop().create_task(working, name=ask.method)

    async def _answer(self, ask: pb.SocketAsk, context: SocketContext) -> None:
        answer = pb.SocketAnswer(id=ask.id)
        try:
            answer.response = await self._rpcs.answer(ask.method, ask.request, context)
        except SandmeshError as error:
            answer.error.CopyFrom(to_detail(error))
        except asyncio.CancelledError:
            if not self._ending:
                raise
            answer.error.CopyFrom(to_detail(_ending(changed=True)))
        finally:
            del self._open[ask.id]
        self._respond(answer)

    def _respond(self, answer: pb.SocketAnswer) -> None:
        self.send(answer.SerializeToString())


def _ending(*, changed: bool = False) -> MeshUnavailable:
    return MeshUnavailable("the gateway ends", changed=changed)


def unary_sockets(services: Sequence[ServiceRegistration], arounds: Sequence[Around]) -> SocketKind:
    """Return the kind of socket that carries unary RPCs."""
    rpcs = Rpcs(services, arounds)
    return SocketKind(".asks", lambda connected: UnarySocketPeer(connected, rpcs))
