"""A bulk call on a separate stream, in both directions; it resumes on a new stream when that one breaks."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from sandmesh._calls.call import Order
from sandmesh._calls.multiplexer import BROKEN, CallStream
from sandmesh._calls.short_call import read_facts
from sandmesh._client.connection import Connection
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallNotFound, MeshUnavailable, SandmeshError, from_detail
from sandmesh.shared.backoff import back_off
from sandmesh.shared.bulk_frames import write_input
from sandmesh.shared.wire_errors import from_rpc_error

# The most bytes in flight in a call, in each direction.
WINDOW = 4 * 1024 * 1024
ACKNOWLEDGE_BYTES = WINDOW // 4
# As long as calls on the shared stream wait for an unreachable mesh.
RETRY_SECONDS = 60.0
CANCEL_SECONDS = 2.0
LATE_START_SECONDS = (0.0, 0.1)
"""The delays of the attempts to cancel a call that may not have started yet."""


class TransferWindow:
    """The input of a call on its way: what the call has not acknowledged yet, at most a window."""

    def __init__(self, source: AsyncIterator[bytes] | None, changed: asyncio.Event) -> None:
        self.source = source
        self.error: Exception | None = None
        """What the source raised; the call gets no end of input then."""
        self._changed = changed
        self._pending: deque[pb.Input] = deque()
        self._bytes = 0
        self._last = 0
        self._room = asyncio.Event()

    async def fill(self) -> None:
        """Take the source's data as input while the call goes on."""
        if self.source is None:
            return
        try:
            async for data in self.source:
                await self._put(data, end=False)
            await self._put(b"", end=True)
        except Exception as error:
            # The source is the user's own: its exception is raised to the waiter of the call.
            self.error = error
            self._changed.set()

    async def _put(self, data: bytes, *, end: bool) -> None:
        while self._bytes >= WINDOW:
            self._room.clear()
            await self._room.wait()
        self._last += 1
        self._pending.append(pb.Input(sequence=self._last, data=data, end=end))
        self._bytes += len(data)
        self._changed.set()

    def acknowledge(self, sequence: int) -> None:
        """Drop the input up to a sequence number, which the call has taken."""
        while self._pending and self._pending[0].sequence <= sequence:
            self._bytes -= len(self._pending.popleft().data)
        self._room.set()

    def after(self, sequence: int) -> pb.Input | None:
        """Return the first pending input after a sequence number."""
        return next((message for message in self._pending if message.sequence > sequence), None)


class Transfer:
    """A running call; `source` yields its input, None for a call without input."""

    def __init__(self, connection: Connection, order: Order, source: AsyncIterator[bytes] | None) -> None:
        self.result: pb.Result | None = None
        self.facts: dict[str, Any] = {}
        """The facts that the call reported before its bytes."""
        self._connection = connection
        self._order = order
        self._call_id = secrets.token_hex(16)
        self._last = 0
        self._acknowledged = 0
        self._consumed = 0
        self._reading = False
        self._work = asyncio.Event()
        self.input = TransferWindow(source, self._work)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the call's output until its result.

        Raises:
            SandmeshError: The mesh refused the call or was unreachable for too long.
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

    async def cancel(self) -> None:
        """Cancel the call in the sandbox, after its stream has ended."""
        request = pb.CancelCallRequest(sandbox_id=self._order.sandbox_id, call_id=self._call_id)
        request.fencing_token = self._order.fencing_token
        for pause in LATE_START_SECONDS:
            await asyncio.sleep(pause)
            try:
                await self._connection.ask(lambda stubs: stubs.calls.CancelCall, request, CANCEL_SECONDS)
            except CallNotFound:
                # Its start may still be in flight, on another connection.
                continue
            except SandmeshError:
                return
            return

    def finished(self) -> pb.Result:
        """Return the result.

        Raises:
            MeshUnavailable: There is no result yet.
        """
        if self.result is None:
            raise MeshUnavailable("the call has no result yet", changed=True)
        return self.result

    def check_input(self) -> None:
        """Raise the exception of the input's source, if there was one."""
        if self.input.error is not None:
            raise self.input.error

    def _read(self, event: pb.CallEvent) -> list[bytes]:
        kind = event.WhichOneof("event")
        if kind == "result":
            self.result = event.result
        elif kind == "output" and event.output.stream == pb.STREAM_STDERR:
            self.facts = read_facts(event.output.data)
        elif kind == "output":
            return [event.output.data]
        return []

    async def _batches(self) -> AsyncGenerator[pb.CallEventBatch]:
        pauses, broken_since = back_off(), 0.0
        while self.result is None:
            try:
                async for batch in self._follow():
                    pauses, broken_since = back_off(), 0.0
                    yield batch
                raise MeshUnavailable("the mesh ended the stream", changed=True)  # noqa: TRY301 - as if it had been received
            except MeshUnavailable as closed:
                error: SandmeshError = closed
            except grpc.aio.AioRpcError as failed:
                error = _read_failure(failed)
            if self.result is not None:
                return
            broken_since = broken_since or time.monotonic()
            if not isinstance(error, MeshUnavailable) or time.monotonic() - broken_since > RETRY_SECONDS:
                raise error
            await asyncio.sleep(next(pauses))

    async def _follow(self) -> AsyncGenerator[pb.CallEventBatch]:
        """Run the call over one stream, until the call or the stream ends."""
        stream = await self._connection.open_bulk(lambda: self._reading)
        writing = asyncio.create_task(self._write(stream))
        try:
            while self.result is None and isinstance(response := await self._next(stream), pb.MultiplexResponse):
                batch = response.batch
                if batch.HasField("error"):
                    raise from_detail(batch.error)
                self.input.acknowledge(batch.input_ack_sequence)
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

    async def _next(self, stream: CallStream) -> object:
        self._reading = True
        try:
            return await stream.read()
        finally:
            # A slow reader must not make the mesh seem silent.
            self._reading = False

    async def _write(self, stream: CallStream) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader reports the reason
            await self._send(stream, self._first_frame())
            sent, acknowledged, cancelled = 0, self._last, False
            while True:
                self._work.clear()
                if self.input.error is not None and not cancelled:
                    # After the start, which must come first.
                    cancelled = True
                    await self._send(stream, pb.CallFrame(cancel=pb.Cancel()))
                if self._acknowledged > acknowledged:
                    acknowledged = self._acknowledged
                    await self._send(stream, pb.CallFrame(acknowledge=pb.Acknowledge(sequence=acknowledged)))
                item = self.input.after(sent)
                if item is not None:
                    sent = item.sequence
                    await stream.write(write_input(self._call_id, item))
                elif not self._work.is_set():
                    await self._work.wait()

    async def _send(self, stream: CallStream, frame: pb.CallFrame) -> None:
        frame.call_id = self._call_id
        await stream.write(pb.MultiplexRequest(frames=[frame]))

    def _first_frame(self) -> pb.CallFrame:
        order = self._order
        if self._last:
            attach = pb.Attach(sandbox_id=order.sandbox_id, call_id=self._call_id, after_sequence=self._last)
            attach.fencing_token = order.fencing_token
            return pb.CallFrame(attach=attach)
        # If it was started before, starting it again attaches to it: it runs at most once.
        start = pb.CallStart(
            sandbox_id=order.sandbox_id,
            call_id=self._call_id,
            tool=order.tool,
            arguments=order.arguments,
            fencing_token=order.fencing_token,
            window_bytes=WINDOW,
            takes_input=self.input.source is not None,
        )
        start.timeout.FromNanoseconds(int(order.timeout * 1e9))
        return pb.CallFrame(start=start)


@asynccontextmanager
async def open_transfer(
    connection: Connection, order: Order, source: AsyncIterator[bytes] | None = None
) -> AsyncGenerator[Transfer]:
    """Open a call that runs as its chunks are read; it is cancelled if it has no result at the end of the block."""
    transfer = Transfer(connection, order, source)
    filler = asyncio.create_task(transfer.input.fill())
    try:
        yield transfer
        transfer.check_input()
    finally:
        filler.cancel()
        await asyncio.wait([filler])
        if transfer.result is None:
            await asyncio.shield(transfer.cancel())


def _read_failure(failed: grpc.aio.AioRpcError) -> SandmeshError:
    """Return the error that a stream ended with; one that no service of the mesh sent means a broken stream."""
    error = from_rpc_error(failed)
    if "grpc_code" in error.facts and failed.code() in BROKEN:
        return MeshUnavailable(error.message, error.facts, changed=True)
    return error
