"""Finds out within seconds that a connection is dead though it looks open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import MeshUnavailable

# A gateway answers an empty request with an empty response, where nothing was heard for so long.
BEAT_SECONDS = 2.0
DEAD_SECONDS = 6.0


class Carrier(Protocol):
    """A gRPC stream of Multiplex."""

    async def read(self) -> object:
        """Return the next MultiplexResponse, anything else at the end."""
        ...

    async def write(self, request: pb.MultiplexRequest) -> None:
        """Send a request once there is room for it."""
        ...

    async def done_writing(self) -> None:
        """Announce that no request follows."""
        ...

    def cancel(self) -> bool:
        """Abort it."""
        ...


class Heartbeat:
    """Asks whether the other side lives while something is awaited of it, and tells when it was silent for too long."""

    def __init__(self, busy: Callable[[], bool], ask: Callable[[], None], on_dead: Callable[[], None]) -> None:
        """Begin: `ask` sends something that is answered while `busy` returns True."""
        self._busy = busy
        self._ask = ask
        self._on_dead = on_dead
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._look)

    def hear(self) -> None:
        """Note that the other side said something."""
        self._heard = self._loop.time()

    def stop(self) -> None:
        """End."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        # A delay of this process itself is not silence of the other side.
        self._heard += max(0.0, now - self._timer.when())
        if not self._busy():
            self._heard = now
        elif now - self._heard > DEAD_SECONDS:
            self._on_dead()
            return
        elif now - self._heard >= BEAT_SECONDS:
            self._ask()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._look)


def silent() -> MeshUnavailable:
    """Return the error of a stream that was given up."""
    return MeshUnavailable(f"the mesh was silent for {DEAD_SECONDS:g} s")


class WatchedStream:
    """A stream of Multiplex that ends when its other side is silent, as long as there are calls to hear of."""

    def __init__(self, stream: Carrier, busy: Callable[[], bool], on_dead: Callable[[], None]) -> None:
        self._stream = stream
        self._on_dead = on_dead
        self._dead = False
        self._writing = asyncio.Lock()
        self._beat: asyncio.Task[None] | None = None
        self._heart = Heartbeat(busy, self._ask, self._die)

    async def read(self) -> object:
        """Return the next response, anything else at the end.

        Raises:
            MeshUnavailable: The other side is silent.
        """
        try:
            response = await self._stream.read()
        except asyncio.CancelledError:
            if self._dead:
                raise silent() from None
            raise
        self._heart.hear()
        return response

    async def write(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request once there is room for it."""
        if isinstance(request, bytes):
            request = pb.MultiplexRequest.FromString(request)
        async with self._writing:
            await self._stream.write(request)

    async def done_writing(self) -> None:
        """Announce that no request follows."""
        async with self._writing:
            await self._stream.done_writing()

    def cancel(self) -> bool:
        """Abort it."""
        self._heart.stop()
        if self._beat is not None:
            self._beat.cancel()
        return self._stream.cancel()

    def _ask(self) -> None:
        if self._beat is None or self._beat.done():
            self._beat = asyncio.get_running_loop().create_task(self.write(pb.MultiplexRequest()))
            # How it failed is what reading tells.
            self._beat.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _die(self) -> None:
        self._dead = True
        self._on_dead()
        self.cancel()
