"""Carries all calls of a loop over one long-lived stream, and over the next one when that breaks."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import grpc

from sandmesh._calls.call import CHUNK, WINDOW, Call, Order, Receiver
from sandmesh._calls.call_traces import let_go, traced
from sandmesh._calls.local_socket import DirectStream
from sandmesh._calls.outage import PATIENCE_SECONDS, Outage
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InternalError, MeshUnavailable, SandmeshError, WrongState, from_detail
from sandmesh.shared.backoff import back_off
from sandmesh.shared.traces.context import may_trace
from sandmesh.shared.wire_errors import from_rpc_error

# An acknowledgement that frees less than half a window waits so long for frames to go along with.
ACKNOWLEDGE_SECONDS = 0.05
# A message has at most MOST_FRAMES small frames and one large one, so that it stays below what servers take.
SMALL = 64 * 1024
MOST_FRAMES = 32

_ANOTHER = "this program attached to the call again: this subscriber gets no more of it"


BROKEN = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)

log = logging.getLogger("sandmesh")


class CallStream(Protocol):
    """What carries all calls: a gRPC stream of Multiplex, or one that is read and written directly."""

    async def read(self) -> object:
        """Return the next MultiplexResponse, anything else at the end."""
        ...

    async def write(self, request: pb.MultiplexRequest | bytes) -> None:
        """Send a request, which may be serialized, once there is room for it."""
        ...

    async def done_writing(self) -> None:
        """Announce that no request follows."""
        ...

    def cancel(self) -> bool:
        """Abort it."""
        ...


OpenStream = Callable[[], Awaitable[CallStream]]


class FrameOutbox:
    """Frames and acknowledgements that wait for a message to leave in; of large frames each message has one."""

    def __init__(self) -> None:
        self.frames: list[pb.CallFrame] = []
        self.bulk: deque[pb.CallFrame] = deque()
        self.acknowledged: dict[str, int] = {}
        """The last event to acknowledge of each call."""
        self.oldest = 0.0
        """When the first of these was added, by the loop's clock."""
        self.urgent = False
        """Whether acknowledgements leave though no frame does."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self.frames or self.bulk or self.acknowledged)

    def add_start(self, call: Call) -> None:
        """Add the frames that start a call, or attach to it."""
        order, arguments = call.order, call.order.arguments
        if order.attach_to:
            self.frames.extend(call.attach_frames())
            return
        start = pb.CallStart(
            sandbox_id=order.sandbox_id,
            call_id=call.call_id,
            tool=order.tool,
            arguments=arguments if len(arguments) <= CHUNK else arguments[:CHUNK],
            arguments_size=len(arguments) if len(arguments) > CHUNK else 0,
            fencing_token=order.fencing_token,
            window_bytes=WINDOW,
            output_limit_bytes=order.output_limit,
            takes_input=order.takes_input,
            overflow=pb.OVERFLOW_DROP_OLDEST if order.drops_oldest else pb.OVERFLOW_BLOCK,
        )
        if order.timeout:
            start.timeout.seconds = int(order.timeout)
            start.timeout.nanos = int(order.timeout % 1 * 1e9)
        if order.trace is not None:
            start.trace.traceparent, start.trace.tracestate = order.trace
            start.trace.into_processes = order.traces_processes
        frame = pb.CallFrame(call_id=call.call_id, start=start)
        if len(arguments) <= SMALL:
            self.frames.append(frame)
        else:
            self.bulk.extend((frame, *call.chunk_frames()))

    def discard(self, call: Call) -> bool:
        """Discard a call's large frames; return whether its start was the first of them, so that it never began."""
        unsent = [frame for frame in self.bulk if frame.call_id == call.call_id]
        if unsent:
            self.bulk = deque(frame for frame in self.bulk if frame.call_id != call.call_id)
        return bool(unsent) and unsent[0].HasField("start")

    def refill(self, calls: Iterable[Call]) -> None:
        """Replace what was queued for the last stream by frames for the next, made from calls, which know what came."""
        self.frames.clear()
        self.bulk.clear()
        for call in calls:
            if call.last or call.abandoned:
                self.frames.extend(call.attach_frames())
            else:
                # It may never have arrived. If it did, starting it again attaches to it: it runs once at most.
                self.add_start(call)
            self.bulk.extend(map(call.input_frame, call.inputs))

    def next_request(self, *, closing: bool) -> pb.MultiplexRequest:
        """Take the next message; one without frames where nothing has to leave now."""
        frames, self.frames = self.frames[:MOST_FRAMES], self.frames[MOST_FRAMES:]
        if self.acknowledged and (frames or self.urgent or closing):
            self.urgent = False
            acknowledged, self.acknowledged = self.acknowledged, {}
            frames.extend(
                pb.CallFrame(call_id=call_id, acknowledge=pb.Acknowledge(sequence=sequence))
                for call_id, sequence in acknowledged.items()
            )
        if self.bulk:
            frames.append(self.bulk.popleft())
        return pb.MultiplexRequest(frames=frames, takes_more=True)


class CallMux:
    """Starts calls, gives their events to their receivers, and mends what a broken stream tears.

    Frames that are queued in one turn of the loop leave in one message. A call whose stream broke is attached to
    again after its last event.
    """

    def __init__(self, address: str, new_seconds: float = PATIENCE_SECONDS) -> None:
        """Name the address in errors; a call that no mesh has answered ends after `new_seconds` without one."""
        self._outage = Outage(address, new_seconds)
        # Unique in any sandbox, whatever other clients call there.
        self._call_ids = map(f"{secrets.token_hex(12)}-{{:x}}".format, itertools.count(1))
        self.loop = asyncio.get_running_loop()
        self._calls: dict[str, Call] = {}
        self._outbox = FrameOutbox()
        self._work = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._open: OpenStream | None = None
        self._direct: DirectStream | None = None
        """The carrier that may be written to without waiting: there is one, and its writer has nothing to do."""
        self._turn = False
        """Whether something was written in this turn of the loop: what follows leaves together at its end."""

    def begin(self, order: Order, receiver: Receiver) -> Call:
        """Start a call, or follow one that is there; its frames leave with the next message."""
        call_id = order.attach_to or next(self._call_ids)
        if may_trace():
            receiver = traced(call_id, order, receiver)
        call = Call(call_id, order, receiver)
        before = self._calls.get(call.call_id)
        if before is not None:
            before.receiver.on_error(WrongState(_ANOTHER, {"state": "REPLACED", "call_id": call.call_id}))
        if self._outage.since is not None:
            call.begun = time.monotonic()
        self._calls[call.call_id] = call
        self._outbox.add_start(call)
        self._wake()
        return call

    def send_input(self, call: Call, item: pb.Input) -> None:
        """Send data for a call's standard input; it is sent again on a new stream until the sandbox has it."""
        call.inputs.append(item)
        if self._calls.get(call.call_id) is call:
            # Behind whatever starts the call.
            self._outbox.bulk.append(call.input_frame(item))
            self._wake()

    def detach(self, call: Call) -> None:
        """Detach from a call, which goes on."""
        if self._calls.get(call.call_id) is call:
            let_go(call, "DETACHED")
            del self._calls[call.call_id]
            frame = pb.CallFrame(call_id=call.call_id, detach=pb.Detach())
            (self._outbox.bulk or self._outbox.frames).append(frame)
            self._wake()

    def acknowledge(self, call: Call, sequence: int, size: int) -> None:
        """Free a call's events up to one, `size` bytes more than before."""
        outbox = self._outbox
        if not outbox.acknowledged:
            outbox.oldest = self.loop.time()
        outbox.acknowledged[call.call_id] = sequence
        call.unacknowledged += size
        if call.unacknowledged >= WINDOW // 2:
            call.unacknowledged = 0
            outbox.urgent = True
            self._wake()
        elif self._timer is None:
            self._timer = self.loop.call_later(ACKNOWLEDGE_SECONDS, self._waited)

    def abandon(self, call: Call) -> None:
        """End a call whose caller went away; its result is acknowledged when it comes, and dropped."""
        if call.abandoned or self._calls.get(call.call_id) is not call:
            return
        call.abandoned = True
        let_go(call, "CANCELLED")
        if self._outbox.discard(call):
            del self._calls[call.call_id]
            return
        self._outbox.frames.append(call.cancel_frame())
        self._wake()

    def is_busy(self) -> bool:
        """Return whether calls are under way."""
        return bool(self._calls)

    def fail_all(self, error: SandmeshError) -> None:
        """End every call with an error."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.receiver.on_error(error)

    def resume(self, open_stream: OpenStream) -> None:
        """Carry calls over streams that are opened so."""
        self._open = open_stream
        if self._calls:
            self._wake()

    async def suspend(self) -> None:
        """End the stream, once what is queued was sent; calls go on without it."""
        running, self._running, self._open = self._running, None, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if running is None:
            return
        self._work.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.shield(running)
        running.cancel()
        await asyncio.wait([running])

    def _waited(self) -> None:
        self._timer = None
        # What left with frames did not stop it: to start one for each call costs more than to look here in vain.
        if self._outbox.acknowledged:
            left = self._outbox.oldest + ACKNOWLEDGE_SECONDS - self.loop.time()
            if left > 0:
                self._timer = self.loop.call_later(left, self._waited)
            else:
                self._outbox.urgent = True
                self._wake()

    def _wake(self) -> None:
        if self._open is not None and self._running is None:
            self._running = self.loop.create_task(self._run(self._open), name="sandmesh-calls")
        if self._direct is None:
            self._work.set()
        elif not self._turn:
            self._flush()
            self._turn = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what is queued without waking the writer, as far as there is room."""
        self._turn = False
        stream = self._direct
        while stream is not None and stream.writable.is_set():
            request = self._outbox.next_request(closing=self._open is None)
            if not request.frames:
                return
            stream.write_now(request)
        self._work.set()

    async def _run(self, open_stream: OpenStream) -> None:
        pauses = back_off()
        while self._open is open_stream:
            await self._work.wait()
            error = await self._carry(open_stream)
            if self._outage.since is None:
                pauses = back_off()
            self._give_up(error)
            if self._open is open_stream and self._calls:
                await asyncio.sleep(next(pauses))

    async def _carry(self, open_stream: OpenStream) -> SandmeshError:
        try:
            await self._follow(await open_stream())
        except SandmeshError as refused:
            if not isinstance(refused, MeshUnavailable):
                self.fail_all(refused)
            return refused
        except grpc.aio.AioRpcError as failed:
            error = from_rpc_error(failed)
            if failed.code() not in BROKEN:
                self.fail_all(error)
            return error
        except Exception as failed:
            log.exception("carrying calls failed unexpectedly")
            self.fail_all(InternalError(f"the client has a defect: {failed!r}", changed=True))
        return MeshUnavailable("the mesh ended the stream")

    def _give_up(self, error: SandmeshError) -> None:
        for call, reason in self._outage.overdue(self._calls.values(), error):
            del self._calls[call.call_id]
            call.receiver.on_error(reason)
        if self._calls:
            self._work.set()
        else:
            self._outage.since = None
            self._work.clear()

    async def _follow(self, stream: CallStream) -> None:
        self._outbox.refill(self._calls.values())
        writing = asyncio.create_task(self._write(stream))
        try:
            if isinstance(stream, DirectStream):
                stream.subscribe(self._deliver)
            while isinstance(response := await stream.read(), pb.MultiplexResponse):
                self._deliver(response)
        finally:
            self._direct = None
            writing.cancel()
            stream.cancel()
            await asyncio.wait([writing])

    async def _write(self, stream: CallStream) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # reading finds out why and tells
            while self._open is not None or not self._outbox.is_empty:
                request = self._outbox.next_request(closing=self._open is None)
                if request.frames:
                    await stream.write(request)
                else:
                    self._work.clear()
                    self._direct = stream if isinstance(stream, DirectStream) else None
                    await self._work.wait()
                    self._direct = None
            await stream.done_writing()

    def _deliver(self, response: pb.MultiplexResponse) -> None:
        self._outage.since = None
        together = bool(response.more) and not self._turn
        self._turn = self._turn or together
        try:
            for batch in (response.batch, *response.more):
                self._deliver_batch(batch)
        finally:
            if together:
                # Behind what their callers do next, in the loop's next turn: that leaves together as well.
                self.loop.call_soon(self._flush)

    def _deliver_batch(self, batch: pb.CallEventBatch) -> None:
        call = self._calls.get(batch.call_id)
        if call is None:
            return
        if batch.HasField("error"):
            del self._calls[batch.call_id]
            call.receiver.on_error(from_detail(batch.error))
            return
        events: Sequence[pb.CallEvent] = batch.events
        if not events or batch.input_ack_sequence or batch.input_taken_sequence:
            call.input_taken(batch)
            call.receiver.on_input_taken(call)
        if events and events[0].sequence <= call.last:  # an attach may bring some twice
            events = [event for event in events if event.sequence > call.last]
        if not events:
            return
        call.last = events[-1].sequence
        size = batch.ByteSize()
        if events[-1].HasField("result"):
            del self._calls[call.call_id]
        call.receiver.on_events(call, events, size)
        if call.abandoned:
            self.acknowledge(call, call.last, size)
