"""The events of a call as they happen."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from sandmesh._calls.call import Call, Order
from sandmesh._calls.multiplexer import CallMux
from sandmesh._calls.runner import start_deadline
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import SandmeshError, WrongState
from sandmesh.events import CallEvent, EventReader


class _Buffer:
    """Holds the events that came until they are taken; what is not taken is not acknowledged and so holds back more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ready: deque[tuple[CallEvent, int, int]] = deque()
        self.error: SandmeshError | None = None
        self.ended = False
        self._loop = loop
        self._reader = EventReader()
        self._waiter: asyncio.Future[None] | None = None

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        share = size // len(events) + 1
        for event in events:
            read = self._reader.read(event)
            if read is not None:
                self.ready.append((read, event.sequence, share))
        self.ended = self.ended or events[-1].HasField("result")
        self._tell()

    def on_input_taken(self, call: Call) -> None:
        """Ignore it: no input was sent."""

    def on_error(self, error: SandmeshError) -> None:
        if not self.ended:
            self.error, self.ended = error, True
            self._tell()

    async def wait(self) -> None:
        while not self.ready and not self.ended:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EventStream(AsyncIterator[CallEvent]):
    """The events of one call as they happen; the call starts when the first is asked for.

    Who iterates slowly slows the call: output that was not taken holds back more once a window (1 MiB) is full.
    Leaving the iteration, `aclose()` or the end of an `async with` block cancels a call that still runs.
    """

    def __init__(self, open_mux: Callable[[], CallMux], order: Order) -> None:
        self._open_mux = open_mux
        self._order = order
        self._mux: CallMux | None = None
        self._call: Call | None = None
        self._buffer: _Buffer | None = None
        self._late: asyncio.TimerHandle | None = None

    async def __anext__(self) -> CallEvent:
        """Wait for the next event.

        Raises:
            SandmeshError: The mesh refused the call or could not go on with it.
        """
        buffer = await self._wait()
        if not buffer.ready:
            self._end(buffer)
            raise StopAsyncIteration
        event, sequence, size = buffer.ready.popleft()
        self._acknowledge(sequence, size)
        return event

    async def take(self) -> list[CallEvent]:
        """Wait for events and give those there are; an empty list is the end.

        Raises:
            SandmeshError: The mesh refused the call or could not go on with it.
        """
        buffer = await self._wait()
        if not buffer.ready:
            self._end(buffer)
            return []
        taken = list(buffer.ready)
        buffer.ready.clear()
        self._acknowledge(taken[-1][1], sum(size for _, _, size in taken))
        return [event for event, _, _ in taken]

    async def answer(self, line: str) -> None:
        """Send a line of input to code that reads one.

        Raises:
            WrongState: The call was not started, or takes no input.
        """
        if self._mux is None or self._call is None or not self._order.takes_input:
            raise WrongState("no call that takes input runs here", {"state": "NO_INPUT"})
        self._mux.send_input(self._call, self._call.next_line(line))

    async def aclose(self) -> None:
        """Cancel the call if it still runs, and end the iteration."""
        self.drop()

    def drop(self) -> None:
        """Close as `aclose` does, in the loop, without waiting."""
        if self._buffer is None:
            self._buffer = _Buffer(asyncio.get_running_loop())
        self._buffer.ready.clear()
        self._buffer.ended = True
        if self._late is not None:
            self._late.cancel()
        if self._mux is not None and self._call is not None:
            self._mux.abandon(self._call)

    async def __aenter__(self) -> EventStream:
        """Return itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Cancel the call if it still runs."""
        self.drop()

    def __del__(self) -> None:
        """Cancel a call whose events can no longer be read."""
        mux, call = self._mux, self._call
        if mux is not None and call is not None and self._buffer is not None and not self._buffer.ended:
            with suppress(RuntimeError):  # its loop is closed, and with it the call's stream
                mux.loop.call_soon_threadsafe(mux.abandon, call)

    async def _wait(self) -> _Buffer:
        if self._buffer is None:
            self._mux = mux = self._open_mux()
            self._buffer = buffer = _Buffer(mux.loop)
            self._call = mux.begin(self._order, buffer)
            self._late = start_deadline(mux, self._order, buffer)
        try:
            await self._buffer.wait()
        except asyncio.CancelledError:
            self.drop()
            raise
        return self._buffer

    def _end(self, buffer: _Buffer) -> None:
        error, buffer.error = buffer.error, None
        self.drop()
        if error is not None:
            raise error

    def _acknowledge(self, sequence: int, size: int) -> None:
        if self._mux is not None and self._call is not None:
            self._mux.acknowledge(self._call, sequence, size)
