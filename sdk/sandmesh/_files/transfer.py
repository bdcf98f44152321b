"""One call on a stream of its own: bulk both ways, taken up again on a new stream when that breaks."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from sandmesh._calls.call import Order
from sandmesh._calls.multiplexer import BROKEN, Stream
from sandmesh._client.connection import Connection
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallNotFound, MeshUnavailable, SandmeshError, from_detail
from sandmesh.shared.backoff import back_off
from sandmesh.shared.bulk_frames import write_input
from sandmesh.shared.wire_errors import from_rpc_error

# How much may be under way in a call, each way.
WINDOW = 4 * 1024 * 1024
ACKNOWLEDGE_BYTES = WINDOW // 4
# As long as calls on the shared stream wait for a mesh that went away.
PATIENCE_SECONDS = 60.0
CANCEL_SECONDS = 2.0
LATE_START_SECONDS = (0.0, 0.1)
"""When a call that may not have begun is cancelled."""


class Transfer:
    """A call under way; `source` is what it gets as input, None for a call without."""

    def __init__(self, connection: Connection, order: Order, source: AsyncIterator[bytes] | None) -> None:
        self.result: pb.Result | None = None
        self.facts: dict[str, Any] = {}
        """What the call said of itself before its bytes."""
        self._connection = connection
        self._order = order
        self._source = source
        self._call_id = secrets.token_hex(16)
        self._last = 0
        self._acknowledged = 0
        self._consumed = 0
        self._inputs: deque[pb.Input] = deque()
        self._input_bytes = 0
        self._numbered = 0
        self._reading = False
        self._input_error: BaseException | None = None
        self._cancelled = False
        self._work = asyncio.Event()
        self._room = asyncio.Event()

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Give what the call writes, to its result.

        Raises:
            SandmeshError: The mesh refused the call or went away for long.
        """
        async for batch in self._batches():
            for event in batch.events:
                if event.sequence <= self._last:
                    continue
                self._last = event.sequence
                for chunk in self._read(event):
                    yield chunk
            self._consumed += batch.ByteSize()
            if self._consumed >= ACKNOWLEDGE_BYTES:
                self._consumed, self._acknowledged = 0, self._last
                self._work.set()

    async def fill(self) -> None:
        """Take the source's data as input while the call goes on; at most a window of it is held."""
        if self._source is None:
            return
        try:
            async for data in self._source:
                await self._put(data, end=False)
            await self._put(b"", end=True)
        except Exception as error:
            # It is the user's own: it belongs to whoever waits for the call, which gets no end of input.
            self._input_error = error
            self._cancelled = True
            self._work.set()

    async def cancel(self) -> None:
        """End the call in the sandbox, when its stream is no more."""
        request = pb.CancelCallRequest(sandbox_id=self._order.sandbox_id, call_id=self._call_id)
        request.fencing_token = self._order.fencing_token
        for pause in LATE_START_SECONDS:
            await asyncio.sleep(pause)
            try:
                await self._connection.ask(lambda stubs: stubs.calls.CancelCall, request, CANCEL_SECONDS)
            except CallNotFound:
                # What starts it may still be on its way, on a connection of its own.
                continue
            except SandmeshError:
                return
            return

    def finished(self) -> pb.Result:
        """Give the result.

        Raises:
            MeshUnavailable: There is none yet.
        """
        if self.result is None:
            raise MeshUnavailable("the call has no result yet", changed=True)
        return self.result

    def check_input(self) -> None:
        """Raise what the source of the input raised."""
        if self._input_error is not None:
            raise self._input_error

    def _read(self, event: pb.CallEvent) -> list[bytes]:
        kind = event.WhichOneof("event")
        if kind == "result":
            self.result = event.result
        elif kind == "output" and event.output.stream == pb.STREAM_STDERR:
            self.facts = json.loads(event.output.data)
        elif kind == "output":
            return [event.output.data]
        return []

    async def _put(self, data: bytes, *, end: bool) -> None:
        while self._input_bytes >= WINDOW:
            self._room.clear()
            await self._room.wait()
        self._numbered += 1
        self._inputs.append(pb.Input(sequence=self._numbered, data=data, end=end))
        self._input_bytes += len(data)
        self._work.set()

    async def _batches(self) -> AsyncGenerator[pb.CallEventBatch]:
        pauses, broken_since = back_off(), 0.0
        while self.result is None:
            try:
                async for batch in self._follow():
                    pauses, broken_since = back_off(), 0.0
                    yield batch
                raise MeshUnavailable("the mesh ended the stream", changed=True)  # noqa: TRY301 - as if it had said so
            except MeshUnavailable as closed:
                error: SandmeshError = closed
            except grpc.aio.AioRpcError as failed:
                error = _read_failure(failed)
            if self.result is not None:
                return
            broken_since = broken_since or time.monotonic()
            if not isinstance(error, MeshUnavailable) or time.monotonic() - broken_since > PATIENCE_SECONDS:
                raise error
            await asyncio.sleep(next(pauses))

    async def _follow(self) -> AsyncGenerator[pb.CallEventBatch]:
        """Carry the call over one stream, to its end or the stream's."""
        stream = await self._connection.open_bulk(lambda: self._reading)
        writing = asyncio.create_task(self._write(stream))
        try:
            while self.result is None and isinstance(response := await self._next(stream), pb.MultiplexResponse):
                batch = response.batch
                if batch.HasField("error"):
                    raise from_detail(batch.error)
                self._free(batch.input_ack_sequence)
                yield batch
        except asyncio.CancelledError:
            if self._connection.carries:
                raise
            # The channel was closed under the stream, for a fork; the caller did not cancel.
            raise MeshUnavailable("the connection was closed under the call", changed=True) from None
        finally:
            writing.cancel()
            stream.cancel()
            await asyncio.wait([writing])

    async def _next(self, stream: Stream) -> object:
        self._reading = True
        try:
            return await stream.read()
        finally:
            # Who takes long over what came does not make the mesh seem silent.
            self._reading = False

    def _free(self, sequence: int) -> None:
        while self._inputs and self._inputs[0].sequence <= sequence:
            self._input_bytes -= len(self._inputs.popleft().data)
        self._room.set()

    async def _write(self, stream: Stream) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # reading finds out why and tells
            await self._send(stream, self._first_frame())
            sent, acknowledged, cancelled = 0, self._last, False
            while True:
                self._work.clear()
                if self._cancelled and not cancelled:
                    # Behind what starts it: nothing else could come first.
                    cancelled = True
                    await self._send(stream, pb.CallFrame(cancel=pb.Cancel()))
                if self._acknowledged > acknowledged:
                    acknowledged = self._acknowledged
                    await self._send(stream, pb.CallFrame(acknowledge=pb.Acknowledge(sequence=acknowledged)))
                item = next((one for one in self._inputs if one.sequence > sent), None)
                if item is not None:
                    sent = item.sequence
                    await stream.write(write_input(self._call_id, item))
                elif not self._work.is_set():
                    await self._work.wait()

    async def _send(self, stream: Stream, frame: pb.CallFrame) -> None:
        frame.call_id = self._call_id
        await stream.write(pb.MultiplexRequest(frames=[frame]))

    def _first_frame(self) -> pb.CallFrame:
        order = self._order
        if self._last:
            attach = pb.Attach(sandbox_id=order.sandbox_id, call_id=self._call_id, after_sequence=self._last)
            attach.fencing_token = order.fencing_token
            return pb.CallFrame(attach=attach)
        # It may have arrived before. Then starting it again attaches to it: it runs once at most.
        start = pb.CallStart(
            sandbox_id=order.sandbox_id,
            call_id=self._call_id,
            tool=order.tool,
            arguments=order.arguments,
            fencing_token=order.fencing_token,
            window_bytes=WINDOW,
            takes_input=self._source is not None,
        )
        start.timeout.FromNanoseconds(int(order.timeout * 1e9))
        return pb.CallFrame(start=start)


@asynccontextmanager
async def open_transfer(
    connection: Connection, order: Order, source: AsyncIterator[bytes] | None = None
) -> AsyncGenerator[Transfer]:
    """Give a call that runs as its chunks are read; one that has no result at the block's end is cancelled."""
    transfer = Transfer(connection, order, source)
    filling = asyncio.create_task(transfer.fill())
    try:
        yield transfer
        transfer.check_input()
    finally:
        filling.cancel()
        await asyncio.wait([filling])
        if transfer.result is None:
            await asyncio.shield(transfer.cancel())


def _read_failure(failed: grpc.aio.AioRpcError) -> SandmeshError:
    """Give what a stream ended with; what no service of the mesh said is a stream that broke."""
    error = from_rpc_error(failed)
    if "grpc_code" in error.facts and failed.code() in BROKEN:
        return MeshUnavailable(error.message, error.facts, changed=True)
    return error
