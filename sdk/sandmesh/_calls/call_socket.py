"""The stream of all calls over a local socket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from sandmesh._calls.local_socket import LocalSocket
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import from_detail
from sandmesh.shared.frames import pack


class CallSocket(LocalSocket):
    """One connection, with what a gRPC stream of Multiplex has: `write`, `read`, `done_writing` and `cancel`."""

    SUFFIX: ClassVar[str] = ".calls"

    def __init__(self) -> None:
        super().__init__()
        self._responses: deque[pb.MultiplexResponse] = deque()
        self._ended = False
        self._handler: Callable[[pb.MultiplexResponse], None] | None = None
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake waiting readers and writers."""
        self._ended = True
        self._writable.set()
        self._arrived.set()

    def pause_writing(self) -> None:
        """Block `write`."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Release `write`."""
        self._writable.set()

    def handle(self, message: bytes) -> None:
        """Deliver a response, or keep it until it is read; each call's window bounds how many there are."""
        response = pb.MultiplexResponse.FromString(message)
        batch = response.batch
        if not batch.call_id and batch.HasField("error"):
            self.error = from_detail(batch.error)
        elif self._handler is not None:
            self._handler(response)
        else:
            self._responses.append(response)
            self._arrived.set()

    def subscribe(self, handler: Callable[[pb.MultiplexResponse], None]) -> None:
        """Handle responses the moment they arrive; from now on `read` waits for the end alone."""
        self._handler = handler
        while self._responses:
            handler(self._responses.popleft())

    async def read(self) -> pb.MultiplexResponse | None:
        """Return the next response, None at the end.

        Raises:
            SandmeshError: The gateway refused the client.
            Exception: What handled the responses failed with it.
        """
        while not self._responses:
            if self._ended:
                if self.error is not None:
                    raise self.error
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._responses.popleft()

    async def write(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request, which may be serialized, once there is room; on an ended connection it goes nowhere."""
        if not self._writable.is_set():
            await self._writable.wait()
        self.write_now(request)

    @property
    def has_room(self) -> bool:
        """Whether a request would leave at once."""
        return self._writable.is_set()

    def write_now(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request as `write` does, however much waits already."""
        if self.transport is not None and not self._ended:
            self.transport.write(pack(request if isinstance(request, bytes) else request.SerializeToString()))

    async def done_writing(self) -> None:
        """Announce that no request follows."""
        if self.transport is not None and not self._ended:
            self.transport.write_eof()

    def cancel(self) -> bool:
        """End the connection at once."""
        if self.transport is not None:
            self.transport.abort()
        return True
