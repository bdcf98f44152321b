"""The events of a call that its caller holds on to: they wait until they are taken, which holds back more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias
from weakref import WeakSet

from sandmesh._calls.call import WINDOW, Call, Order
from sandmesh._calls.multiplexer import CallMux
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallFinished, SandmeshError
from sandmesh.events import Dropped, EventReader, Output, Result, Started

OutputEvent: TypeAlias = Output | Dropped

INPUT_CHUNK = 256 * 1024
MOST_UNTAKEN_INPUT = 1024 * 1024
TAIL_BYTES = 4096
# The most unread output while the end is awaited and there is no reader.
MOST_UNREAD = WINDOW // 2


class _Output:
    """Output that is not taken yet: events with their sequences and sizes."""

    def __init__(self) -> None:
        self.events: deque[tuple[OutputEvent, int, int]] = deque()
        self.unread = 0
        """Their bytes in all."""
        self.arrived = 0


class Feed:
    """One call, started or attached to, whose output has one reader or none."""

    def __init__(self, mux: CallMux, order: Order) -> None:
        self.pid: int | None = None
        self.result: Result | None = None
        self.error: SandmeshError | None = None
        self.confirmed = False
        """Whether the sandbox said that it has the call."""
        self.tail = b""
        """The last of what was written."""
        self.readers: WeakSet[object] = WeakSet()
        """Who reads: what waits for them is never let go."""
        self._mux = mux
        self._output = _Output()
        self._reader = EventReader()
        self._waiters: set[asyncio.Future[None]] = set()
        self._call = mux.begin(order, self)

    @property
    def arrived(self) -> int:
        """How many events of output have come."""
        return self._output.arrived

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self._call.call_id

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self.result is not None or self.error is not None

    # What the stream does.

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Keep output, and note the rest."""
        share = size // len(events) + 1
        self.confirmed = True
        for event in events:
            self._keep(self._reader.read(event), event.sequence, share)
        if not self._output.events:
            self._mux.acknowledge(call, call.last, size)
        self.tell()

    def _keep(self, event: object, sequence: int, size: int) -> None:
        if isinstance(event, Started):
            self.pid = event.pid
        elif isinstance(event, Result):
            self.result = event
        elif isinstance(event, Output | Dropped):
            self._output.events.append((event, sequence, size))
            self._output.unread += size
            self._output.arrived += 1
            if isinstance(event, Output):
                self.tail = (self.tail + event.data[-TAIL_BYTES:])[-TAIL_BYTES:]

    def on_input_taken(self, call: Call) -> None:
        """Go on with what waits to be sent."""
        self.confirmed = True
        self.tell()

    def on_error(self, error: SandmeshError) -> None:
        """Note that nothing more comes."""
        if not self.ended:
            self.error = error
            self.tell()

    # What the caller does.

    async def take(self, most: int = 1 << 30) -> list[OutputEvent]:
        """Wait for output and give what there is, at most so many events; an empty list is the end.

        Raises:
            SandmeshError: The call cannot go on.
        """
        await self.wait(lambda: self._output.events or self.ended)
        taken: list[OutputEvent] = []
        size, sequence = 0, 0
        while self._output.events and len(taken) < most:
            event, sequence, share = self._output.events.popleft()
            taken.append(event)
            size += share
        if taken:
            self._free(sequence, size)
        else:
            self.check()
        return taken

    def unread(self, after: int) -> list[OutputEvent]:
        """Return the output that is not taken yet, without taking it, from the event of a number on."""
        skipped = max(0, after - (self._output.arrived - len(self._output.events)))
        return [event for event, _, _ in list(self._output.events)[skipped:]]

    async def wait(self, done: Callable[[], object]) -> None:
        """Wait until something is so, asking again with all that comes."""
        while not done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    async def wait_reading(self, done: Callable[[], object]) -> None:
        """Wait, and drop the oldest output where there is no reader and the process would block on what is unread."""

        def room() -> object:
            if self._output.unread > MOST_UNREAD and not self.readers:
                self._let_go()
            return done()

        await self.wait(room)

    async def write(self, data: bytes, *, end: bool = False) -> None:
        """Send input, once what was sent before has mostly been taken.

        Raises:
            CallFinished: Nothing reads it any more.
        """
        pieces = [data[at : at + INPUT_CHUNK] for at in range(0, len(data), INPUT_CHUNK)] or [b""]
        for number, piece in enumerate(pieces, 1):
            await self.wait(self._has_room_for_input)
            self.check()
            if self.result is not None:
                raise CallFinished(f"process {self.call_id} has ended and reads no input", {"call_id": self.call_id})
            self._call.last_input += 1
            item = pb.Input(sequence=self._call.last_input, data=piece, end=end and number == len(pieces))
            self._mux.send_input(self._call, item)

    def detach(self) -> None:
        """Detach from the call, which goes on."""
        if not self.ended:
            self._mux.detach(self._call)

    def cancel(self) -> None:
        """End the call; its events are dropped."""
        if not self.ended:
            self._mux.abandon(self._call)

    def check(self) -> None:
        """Raise what ended the call, if it was no result."""
        if self.error is not None:
            raise self.error

    def _has_room_for_input(self) -> bool:
        return self.ended or sum(len(item.data) for item in self._call.inputs) < MOST_UNTAKEN_INPUT

    def _let_go(self) -> None:
        gone, size, sequence = 0, 0, 0
        while self._output.unread - size > MOST_UNREAD // 2:
            event, sequence, share = self._output.events.popleft()
            gone += len(event.data) if isinstance(event, Output) else event.bytes
            size += share
        self._free(sequence, size)
        self._output.events.appendleft((Dropped(gone), sequence, 0))

    def _free(self, sequence: int, size: int) -> None:
        self._output.unread -= size
        if self.error is None:
            last = self._call.last if self.result is not None and not self._output.events else sequence
            self._mux.acknowledge(self._call, last, size)

    def tell(self) -> None:
        """Wake those that wait, to check again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
