"""Unary RPCs over a local socket, which SocketAsk in call.proto specifies."""

from __future__ import annotations

import asyncio
import itertools
from typing import ClassVar

from sandmesh._calls.local_socket import LocalSocket
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import DeadlineExceeded, MeshUnavailable, from_detail
from sandmesh.shared.frames import MAX_SOCKET_MESSAGE
from sandmesh.shared.traces.context import RemoteTrace

LARGEST_REQUEST = MAX_SOCKET_MESSAGE - 2048
"""The most bytes of a request: what stands around it has to fit too."""


class UnarySocket(LocalSocket):
    """One connection, for any number of concurrent RPCs."""

    SUFFIX: ClassVar[str] = ".asks"

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self.usable = True
        """Whether it takes further RPCs."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every pending RPC."""
        self.usable = False
        pending, self._pending = self._pending, {}
        for response in pending.values():
            if not response.done():
                response.set_exception(self._failure())

    async def request(self, method: str, request: bytes, seconds: float, trace: RemoteTrace | None = None) -> bytes:
        """Send an RPC and return its serialized response, waiting for at most `seconds`.

        Raises:
            SandmeshError: What the mesh answered.
            MeshUnavailable: The connection ended.
            DeadlineExceeded: There was no response in time.
        """
        if not self.usable:
            raise self._failure()
        ask = pb.SocketAsk(id=next(self._numbers), method=method, request=request)
        ask.timeout.FromMicroseconds(int(seconds * 1e6))
        if trace is not None:
            ask.trace.traceparent, ask.trace.tracestate = trace
        response: asyncio.Future[bytes] = self.loop.create_future()
        self._pending[ask.id] = response
        self.send(ask.SerializeToString())
        try:
            async with asyncio.timeout(seconds):
                return await response
        except DeadlineExceeded:
            raise
        except TimeoutError:
            message = f"the mesh did not answer within {seconds:.3g} s"
            raise DeadlineExceeded(message, {"method": method}, changed=True) from None
        finally:
            self._forget(ask.id)

    def retire(self) -> None:
        """Take no further RPCs, and close when the pending ones are answered."""
        self.usable = False
        self._close_if_idle()

    def close(self) -> None:
        """Close immediately and fail the pending RPCs."""
        self.fail(MeshUnavailable("the connection was closed under the request", changed=True))

    def fail(self, error: Exception) -> None:
        """Abort the connection with an error."""
        self.usable = False
        super().fail(error)

    def handle(self, message: bytes) -> None:
        """Resolve the RPC that a response belongs to."""
        answer = pb.SocketAnswer.FromString(message)
        if answer.id == 0:
            self.fail(from_detail(answer.error))
            return
        pending = self._pending.pop(answer.id, None)
        if pending is None or pending.done():
            return
        if answer.HasField("error"):
            pending.set_exception(from_detail(answer.error))
        else:
            pending.set_result(answer.response)

    def _failure(self) -> Exception:
        return self.error or MeshUnavailable("the mesh ended the connection", changed=True)

    def _forget(self, number: int) -> None:
        if self._pending.pop(number, None) is not None:
            self.send(pb.SocketAsk(id=number, cancel=True).SerializeToString())
        if not self.usable:
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._pending and self.transport is not None:
            self.transport.close()
