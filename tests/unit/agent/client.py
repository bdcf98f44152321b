"""A tiny gateway's side of an agent's link."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import from_detail
from sandmesh.shared import frames

SANDBOX, TOKEN = "sb_test", "the agent's token"


@dataclass
class Ended:
    """A call's events, put together."""

    events: list[call_pb2.CallEvent] = field(default_factory=list[call_pb2.CallEvent])
    frames: int = 0

    @property
    def result(self) -> call_pb2.Result:
        return self.events[-1].result

    @property
    def blocks(self) -> list[bytes]:
        return [event.content.json for event in self.events if event.HasField("content")]

    def output(self, stream: int) -> bytes:
        return b"".join(
            event.output.data for event in self.events if event.HasField("output") and event.output.stream == stream
        )

    @property
    def stdout(self) -> bytes:
        return self.output(call_pb2.STREAM_STDOUT)

    @property
    def stderr(self) -> bytes:
        return self.output(call_pb2.STREAM_STDERR)


class Channel:
    """The frames that come on one channel."""

    def __init__(self, client: Client, number: int, call_id: str = "") -> None:
        self.client = client
        self.number = number
        self.call_id = call_id
        self.taken = 0
        self.frames: asyncio.Queue[pb.FromAgent] = asyncio.Queue()

    async def next(self) -> pb.FromAgent:
        async with asyncio.timeout(20):
            return await self.frames.get()

    async def batch(self) -> tuple[call_pb2.CallEventBatch, bool]:
        """Return the next batch of events, and whether it is the last."""
        frame = await self.next()
        assert frame.HasField("batch"), frame
        return call_pb2.CallEventBatch.FromString(frame.batch), frame.final

    def send(self, **body: Any) -> None:
        """Send a frame about the call."""
        frame = call_pb2.CallFrame(call_id=self.call_id, **body)
        self.client.send(pb.ToAgent(channel=self.number, call=pb.Fenced(frame=frame)))

    def acknowledge(self, sequence: int) -> None:
        self.send(acknowledge=call_pb2.Acknowledge(sequence=sequence))

    async def take(self) -> int:
        """Read a batch as a gateway does for a stream, which gives credit alone; return the bytes of output so far."""
        batch, _ = await self.batch()
        self.taken += sum(len(event.output.data) for event in batch.events)
        if batch.events:
            self.send(acknowledge=call_pb2.Acknowledge(sequence=batch.events[-1].sequence, keep=True))
        return self.taken

    async def end(self, *, acknowledge: bool = True) -> Ended:
        """Read to the end, raising what refuses the call."""
        ended = Ended()
        final = False
        while not final:
            batch, final = await self.batch()
            ended.frames += 1
            if batch.HasField("error"):
                raise from_detail(batch.error)
            ended.events += batch.events
            if acknowledge and batch.events:
                self.acknowledge(batch.events[-1].sequence)
        return ended

    async def until(self, wanted: bytes) -> bytes:
        """Read and acknowledge until stdout has some bytes."""
        got = b""
        while wanted not in got:
            batch, _ = await self.batch()
            for event in batch.events:
                got += event.output.data
                self.acknowledge(event.sequence)
        return got


class Client:
    """A link that has said hello."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.numbers = itertools.count(1)
        prefix = secrets.token_hex(8)
        self.ids = (f"{prefix}-{number}" for number in itertools.count(1))
        self.channels: dict[int, Channel] = {}

    def send(self, frame: pb.ToAgent) -> None:
        self.writer.write(frames.pack(frame.SerializeToString()))

    async def receive(self) -> pb.FromAgent:
        """Read one frame, whatever its channel. asyncio.IncompleteReadError: the agent closed the link."""
        async with asyncio.timeout(20):
            return pb.FromAgent.FromString(await frames.read(self.reader, frames.MAX_LINK_MESSAGE))

    async def deliver(self) -> None:
        """Sort frames by their channels until the link ends."""
        while True:
            try:
                frame = pb.FromAgent.FromString(await frames.read(self.reader, frames.MAX_LINK_MESSAGE))
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            if frame.channel in self.channels:
                self.channels[frame.channel].frames.put_nowait(frame)

    def channel(self, call_id: str = "") -> Channel:
        channel = Channel(self, next(self.numbers), call_id)
        self.channels[channel.number] = channel
        return channel

    def start(self, tool: str, arguments: bytes = b"", **envelope: Any) -> Channel:
        """Start a call."""
        envelope = {"sandbox_id": SANDBOX, "call_id": next(self.ids), **envelope}
        channel = self.channel(envelope["call_id"])
        channel.send(start=call_pb2.CallStart(tool=tool, arguments=arguments, **envelope))
        return channel

    def attach(self, call_id: str, after: int = 0, **envelope: Any) -> Channel:
        channel = self.channel(call_id)
        envelope = {"sandbox_id": SANDBOX, "call_id": call_id, "after_sequence": after, **envelope}
        channel.send(attach=call_pb2.Attach(**envelope))
        return channel

    async def ask(self, call_id: str = "", token: int = 0, **body: Any) -> pb.FromAgent:
        """Send a frame on a channel of its own and give the answer."""
        channel = self.channel(call_id)
        if call_id:
            frame = call_pb2.CallFrame(call_id=call_id, **body)
            self.send(pb.ToAgent(channel=channel.number, call=pb.Fenced(frame=frame, fencing_token=token)))
        else:
            self.send(pb.ToAgent(channel=channel.number, **body))
        answer = await channel.next()
        if answer.HasField("error"):
            raise from_detail(answer.error)
        return answer


def hello(**changed: Any) -> pb.ToAgent:
    """Return the first frame."""
    fields: dict[str, Any] = {"protocol": frames.LINK_PROTOCOL, "sandbox_id": SANDBOX, "agent_token": TOKEN, **changed}
    return pb.ToAgent(hello=pb.GatewayHello(**fields))


@asynccontextmanager
async def connect(path: str) -> AsyncGenerator[Client]:
    """Open a link and exchange hellos."""
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 22)
    client = Client(reader, writer)
    client.send(hello())
    assert (await client.receive()).hello.sandbox_id == SANDBOX
    task = asyncio.create_task(client.deliver())
    try:
        yield client
    finally:
        writer.close()
        await task
        # The other side may be gone already.
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
