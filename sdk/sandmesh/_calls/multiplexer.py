"""Carries all calls of a loop over one long-lived stream, and over the next one when that breaks."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import grpc

from sandmesh._calls.call import WINDOW, Call, Nobody, Order, Receiver
from sandmesh._calls.call_socket import CallSocket
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InternalError, MeshUnavailable, SandmeshError, WrongState, from_detail
from sandmesh.shared.backoff import back_off
from sandmesh.shared.wire_errors import from_rpc_error

# An acknowledgement that frees less than half a window waits so long for frames to go along with.
ACKNOWLEDGE_SECONDS = 0.05
# How long calls wait for a mesh that went away; a mesh itself keeps a detached call's output for half of it.
PATIENCE_SECONDS = 60.0
# A message has at most MOST_FRAMES small frames and one large one, so that it stays below what servers take.
SMALL = 64 * 1024
MOST_FRAMES = 32

_ANOTHER = "the call is followed anew from this program: this one gets no more of it"

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


class Stream(Protocol):
    """What carries all calls: a gRPC stream of Multiplex, or a call socket."""

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
        """End it at once."""
        ...


OpenStream = Callable[[], Awaitable[Stream]]


class CallMux:
    """Starts calls, gives their events to their receivers, and mends what a broken stream tears.

    Frames that are queued in one turn of the loop leave in one message. A call whose stream broke is attached to
    again after its last event.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        # Unique in any sandbox, whoever else calls there.
        self._prefix = f"{secrets.token_hex(12)}-"
        self._numbers = itertools.count(1)
        self.loop = asyncio.get_running_loop()
        self._calls: dict[str, Call] = {}
        self._frames: list[pb.CallFrame] = []
        self._bulk: deque[pb.CallFrame] = deque()
        self._acknowledged: dict[str, int] = {}
        self._oldest = 0.0
        """When the first of these came, by the loop's clock."""
        self._freeing = False
        self._work = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._broken_since: float | None = None
        self._running: asyncio.Task[None] | None = None
        self._open: OpenStream | None = None
        self._direct: CallSocket | None = None
        """What may be written to at once: there is one, and its writer has nothing to do."""
        self._turn = False
        """Whether something was written in this turn of the loop: what follows leaves together at its end."""

    def begin(self, order: Order, receiver: Receiver) -> Call:
        """Start a call, or follow one that is there; its frames leave with the next message."""
        call = Call(order.attach_to or f"{self._prefix}{next(self._numbers):x}", order, receiver)
        before = self._calls.get(call.call_id)
        if before is not None:
            before.receiver.on_error(WrongState(_ANOTHER, {"state": "REPLACED", "call_id": call.call_id}))
        self._calls[call.call_id] = call
        self._queue_start(call)
        self._wake()
        return call

    def send_input(self, call: Call, item: pb.Input) -> None:
        """Send data for a call's standard input; it is sent again on a new stream until the sandbox has it."""
        call.inputs.append(item)
        if self._calls.get(call.call_id) is call:
            # Behind whatever starts the call.
            self._bulk.append(call.input_frame(item))
            self._wake()

    def send_line(self, call: Call, line: str) -> None:
        """Send a line for a call's standard input."""
        call.last_input += 1
        self.send_input(call, pb.Input(sequence=call.last_input, data=f"{line}\n".encode()))

    def detach(self, call: Call) -> None:
        """Detach from a call, which goes on."""
        if self._calls.get(call.call_id) is call:
            call.receiver = Nobody()
            del self._calls[call.call_id]
            frame = pb.CallFrame(call_id=call.call_id, detach=pb.Detach())
            (self._bulk or self._frames).append(frame)
            self._wake()

    def acknowledge(self, call: Call, sequence: int, size: int) -> None:
        """Free a call's events up to one, `size` bytes more than before."""
        if not self._acknowledged:
            self._oldest = self.loop.time()
        self._acknowledged[call.call_id] = sequence
        call.unacknowledged += size
        if call.unacknowledged >= WINDOW // 2:
            call.unacknowledged = 0
            self._free()
        elif self._timer is None:
            self._timer = self.loop.call_later(ACKNOWLEDGE_SECONDS, self._waited)

    def abandon(self, call: Call) -> None:
        """End a call whose caller went away; its result, when it comes, is acknowledged for nobody."""
        if call.abandoned or self._calls.get(call.call_id) is not call:
            return
        call.abandoned, call.receiver = True, Nobody()
        unsent = [frame for frame in self._bulk if frame.call_id == call.call_id]
        if unsent:
            self._bulk = deque(frame for frame in self._bulk if frame.call_id != call.call_id)
        if unsent and unsent[0].HasField("start"):
            del self._calls[call.call_id]
            return
        self._frames.append(call.cancel_frame())
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
        if self._acknowledged:
            left = self._oldest + ACKNOWLEDGE_SECONDS - self.loop.time()
            if left > 0:
                self._timer = self.loop.call_later(left, self._waited)
            else:
                self._free()

    def _free(self) -> None:
        self._freeing = True
        self._wake()

    def _wake(self) -> None:
        if self._open is not None and self._running is None:
            self._running = self.loop.create_task(self._run(self._open), name="sandmesh-calls")
        if self._direct is None:
            self._work.set()
        elif not self._turn:
            self._turn = True
            self.loop.call_soon(self._end_turn)
            self._flush(self._direct)

    def _end_turn(self) -> None:
        self._turn = False
        if self._direct is None:
            self._work.set()
        else:
            self._flush(self._direct)

    def _flush(self, stream: CallSocket) -> None:
        """Write what is queued without waking the writer, as far as there is room."""
        while stream.has_room:
            request = self._next_request()
            if not request.frames:
                return
            stream.write_now(request)
        self._work.set()

    async def _run(self, open_stream: OpenStream) -> None:
        pauses = back_off()
        while self._open is open_stream:
            await self._work.wait()
            error = await self._carry(open_stream)
            if self._broken_since is None:
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
        now = time.monotonic()
        self._broken_since = self._broken_since or now
        if self._calls and now - self._broken_since > PATIENCE_SECONDS:
            message = f"the mesh at {self._address} went away and did not come back; calls that ran may still run"
            self.fail_all(MeshUnavailable(message, {"address": self._address, "detail": str(error)}, changed=True))
        if self._calls:
            self._work.set()
        else:
            self._broken_since = None
            self._work.clear()

    async def _follow(self, stream: Stream) -> None:
        self._rejoin()
        writing = asyncio.create_task(self._write(stream))
        try:
            if isinstance(stream, CallSocket):
                stream.subscribe(self._heard)
            while isinstance(response := await stream.read(), pb.MultiplexResponse):
                self._heard(response)
        finally:
            self._direct = None
            writing.cancel()
            stream.cancel()
            await asyncio.wait([writing])

    def _heard(self, response: pb.MultiplexResponse) -> None:
        self._broken_since = None
        self._deliver(response.batch)

    def _rejoin(self) -> None:
        # What was queued for the last stream is made anew from the calls, which know what came.
        self._frames.clear()
        self._bulk.clear()
        for call in self._calls.values():
            if call.last or call.abandoned:
                self._frames.extend(call.attach_frames())
            else:
                # It may never have arrived. If it did, starting it again attaches to it: it runs once at most.
                self._queue_start(call)
            self._bulk.extend(map(call.input_frame, call.inputs))

    def _queue_start(self, call: Call) -> None:
        if call.order.attach_to:
            self._frames.extend(call.attach_frames())
        elif len(call.order.arguments) <= SMALL:
            self._frames.append(call.start_frame())
        else:
            self._bulk.extend((call.start_frame(), *call.chunk_frames()))

    async def _write(self, stream: Stream) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # reading finds out why and tells
            while self._open is not None or self._frames or self._bulk or self._acknowledged:
                request = self._next_request()
                if request.frames:
                    await stream.write(request)
                else:
                    self._work.clear()
                    self._direct = stream if isinstance(stream, CallSocket) else None
                    await self._work.wait()
                    self._direct = None
            await stream.done_writing()

    def _next_request(self) -> pb.MultiplexRequest:
        frames, self._frames = self._frames[:MOST_FRAMES], self._frames[MOST_FRAMES:]
        if self._acknowledged and (frames or self._freeing or self._open is None):
            frames.extend(self._acknowledgements())
        if self._bulk:
            frames.append(self._bulk.popleft())
        return pb.MultiplexRequest(frames=frames)

    def _acknowledgements(self) -> list[pb.CallFrame]:
        self._freeing = False
        acknowledged, self._acknowledged = self._acknowledged, {}
        return [
            pb.CallFrame(call_id=call_id, acknowledge=pb.Acknowledge(sequence=sequence))
            for call_id, sequence in acknowledged.items()
        ]

    def _deliver(self, batch: pb.CallEventBatch) -> None:
        call = self._calls.get(batch.call_id)
        if call is None:
            return
        if batch.HasField("error"):
            del self._calls[batch.call_id]
            call.receiver.on_error(from_detail(batch.error))
            return
        if batch.input_ack_sequence or batch.input_taken_sequence or not batch.events:
            call.input_taken(batch)
            call.receiver.on_input_taken(call)
        if batch.events:
            self._take(call, batch)

    def _take(self, call: Call, batch: pb.CallEventBatch) -> None:
        events = call.unseen(batch.events)
        if not events:
            return
        size = batch.ByteSize()
        if events[-1].HasField("result"):
            del self._calls[call.call_id]
        call.receiver.on_events(call, events, size)
        if call.abandoned:
            self.acknowledge(call, call.last, size)
