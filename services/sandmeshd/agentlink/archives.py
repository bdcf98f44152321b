"""What a sandbox holds, out of it or into one, as a tar stream over its agent's link, little of it in memory."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from google.protobuf.message import Message

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import SandboxLost, SandboxStartFailed, from_detail
from sandmeshd.agentlink.control_link import AgentLink, held_link

_CHANNEL = 1
_WINDOW = 4 << 20
_CHUNK = 256 << 10
_TAKING = ("fs.unpack", "fs.restore")


class _Call:
    """One call on a link of its own."""

    def __init__(self, link: AgentLink, call_id: str) -> None:
        self._link = link
        self._call_id = call_id
        self.result: call_pb2.Result | None = None
        self.acknowledged = 0

    async def send(self, **body: Message) -> None:
        """Send a frame of the call."""
        frame = call_pb2.CallFrame(call_id=self._call_id)
        for name, message in body.items():
            getattr(frame, name).CopyFrom(message)
        await self._link.send(agent_pb2.ToAgent(channel=_CHANNEL, call=agent_pb2.Fenced(frame=frame)))

    async def batch(self) -> list[bytes]:
        """Wait for the next events; give the output in them."""
        answer = await self._link.receive()
        while answer.channel != _CHANNEL:
            answer = await self._link.receive()
        batch = call_pb2.CallEventBatch.FromString(answer.batch)
        if batch.HasField("error"):
            raise from_detail(batch.error)
        self.acknowledged = max(self.acknowledged, batch.input_ack_sequence)
        output = [event.output.data for event in batch.events if event.HasField("output")]
        for event in batch.events:
            if event.HasField("result"):
                self.result = event.result
        if batch.events:
            await self.send(acknowledge=call_pb2.Acknowledge(sequence=batch.events[-1].sequence))
        return output


@asynccontextmanager
async def _started(
    sandbox: driver_pb2.RuntimeSandbox, token: int, tool: str, **arguments: object
) -> AsyncGenerator[_Call]:
    call_id = f"keep-{secrets.token_hex(12)}"
    start = call_pb2.CallStart(
        sandbox_id=sandbox.sandbox_id,
        call_id=call_id,
        tool=tool,
        arguments=json.dumps(arguments).encode(),
        fencing_token=token,
        window_bytes=_WINDOW,
        takes_input=tool in _TAKING,
    )
    async with AsyncExitStack() as stack:
        call = _Call(await stack.enter_async_context(held_link(sandbox)), call_id)
        await call.send(start=start)
        yield call


async def packed(sandbox: driver_pb2.RuntimeSandbox, token: int) -> AsyncGenerator[bytes]:
    """Give the workspace as a tar stream.

    Raises:
        SandboxLost: Its agent does not answer, or what it holds cannot be read; the message says what.
        LeaseLost: The token is not the one in force.
    """
    async with _started(sandbox, token, "fs.pack", any_modes=True) as call:
        async for data in _drained(call, f"the workspace of {sandbox.sandbox_id}"):
            yield data


async def saved(sandbox: driver_pb2.RuntimeSandbox, token: int) -> AsyncGenerator[bytes]:
    """Give workspace and home as a tar stream; user code stands still until it has ended.

    Raises:
        SandboxLost: As `packed`.
        LeaseLost: The token is not the one in force.
    """
    async with _started(sandbox, token, "fs.save") as call:
        async for data in _drained(call, f"what {sandbox.sandbox_id} holds"):
            yield data


async def _drained(call: _Call, what: str) -> AsyncGenerator[bytes]:
    while call.result is None:
        for data in await call.batch():
            yield data
    if call.result.is_error:
        said = call.result.message
        raise SandboxLost(f"{what} cannot be read: {said}", {"detail": said})


async def unpacked(sandbox: driver_pb2.RuntimeSandbox, token: int, stream: AsyncIterator[bytes]) -> None:
    """Make the workspace of a tar stream: all of it or nothing.

    Raises:
        SandboxStartFailed: The sandbox does not take it; the message says why.
        SandboxLost: Its agent does not answer.
        LeaseLost: The token is not the one in force.
    """
    async with _started(sandbox, token, "fs.unpack", any_links=True) as call:
        await _fed(call, stream, "the saved workspace")


async def restored(sandbox: driver_pb2.RuntimeSandbox, token: int, stream: AsyncIterator[bytes]) -> None:
    """Make workspace and home of what `saved` gave: all of it or nothing.

    Raises:
        SandboxStartFailed, SandboxLost, LeaseLost: As `unpacked`.
    """
    async with _started(sandbox, token, "fs.restore") as call:
        await _fed(call, stream, "the snapshot")


async def _fed(call: _Call, stream: AsyncIterator[bytes], what: str) -> None:
    sequence = 0
    async for piece in stream:
        for at in range(0, len(piece), _CHUNK):
            sequence += 1
            await _put(call, call_pb2.Input(sequence=sequence, data=piece[at : at + _CHUNK]))
    if call.result is None:
        await call.send(input=call_pb2.Input(sequence=sequence + 1, end=True))
    while call.result is None:
        await call.batch()
    if call.result.is_error:
        said = call.result.message
        raise SandboxStartFailed(f"{what} does not go into the sandbox: {said}", {"detail": said})


async def _put(call: _Call, item: call_pb2.Input) -> None:
    while call.result is None and (item.sequence - call.acknowledged) * _CHUNK > _WINDOW:
        await call.batch()
    if call.result is None:
        await call.send(input=item)
