"""The call socket of a gateway, spoken to by hand and by the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from google.protobuf.message import Message

from sandmesh._calls.local_socket import CallSocket, connect
from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.errors.v1 import errors_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import Unauthenticated
from sandmesh.shared.bulk_frames import write_input
from sandmesh.shared.frames import MAX_SOCKET_MESSAGE, pack
from sandmeshd.auth.channels import open_channel
from sandmeshd.auth.principal import ADMIN
from sandmeshd.gateway import GatewaySettings, open_gateway
from sandmeshd.gateway.calls.call_socket import call_sockets
from sandmeshd.gateway.calls.relay import Client
from sandmeshd.gateway.door.local_sockets import open_local_sockets
from sandmeshd.gateway.routes.routes import Routes
from sandmeshd.runtime.rpc.interceptors import Around, Context
from sandmeshd.runtime.rpc.server import open_server

from .stand_in import Allocator, Peer, Script, agent, output, result

HELLO = pb.SocketHello(protocol=1)


class Wire:
    """A client that writes what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *messages: Message) -> None:
        self.writer.write(b"".join(pack(message.SerializeToString()) for message in messages))

    async def receive(self) -> pb.CallEventBatch:
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return pb.MultiplexResponse.FromString(await self.reader.readexactly(length)).batch

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


async def echo(peer: Peer) -> None:
    while True:
        message = await peer.receive()
        begun = message.call.frame.start
        if message.call.frame.HasField("start"):
            peer.send_events(message.channel, begun.call_id, output(1, begun.arguments.decode()), result(2))


@asynccontextmanager
async def dial(path: Path) -> AsyncGenerator[Wire]:
    reader, writer = await asyncio.open_unix_connection(f"{path}.calls")
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Path]:
    """A gateway's unix socket; the agent of sb_one echoes arguments."""
    async with serving_agent(tmp_path, echo) as path:
        yield path


@asynccontextmanager
async def serving_agent(tmp_path: Path, script: Script) -> AsyncGenerator[Path]:
    """Run a gateway before an agent of sb_one."""
    async with AsyncExitStack() as stack, asyncio.timeout(20):
        enter = stack.enter_async_context
        await enter(agent(tmp_path / "agent", script))
        registration = Allocator(tmp_path / "agent").registration()
        upstream = await enter(open_server([f"unix://{tmp_path}/i"], [registration]))
        channel = await enter(open_channel(upstream.addresses[0]))
        settings = GatewaySettings(listen=(f"unix://{tmp_path}/g",), http_listen=())
        await enter(open_gateway(settings, channel, channel))
        yield tmp_path / "g"


def starting(call_id: str, sandbox_id: str = "sb_one", arguments: bytes = b"x") -> pb.MultiplexRequest:
    start = pb.CallStart(sandbox_id=sandbox_id, call_id=call_id, tool="t", arguments=arguments)
    return pb.MultiplexRequest(frames=[pb.CallFrame(call_id=call_id, start=start)])


async def test_calls_pass_and_what_came_with_the_hello_is_not_lost(gateway: Path) -> None:
    async with dial(gateway) as wire:
        wire.send(HELLO, starting("one"), starting("two", "sb_other"))
        batches = {batch.call_id: batch for batch in [await wire.receive(), await wire.receive()]}
    assert [event.WhichOneof("event") for event in batches["one"].events] == ["output", "result"]
    assert batches["two"].error.reason == errors_pb2.ERROR_REASON_SANDBOX_NOT_FOUND


async def test_large_input_reaches_the_agent_as_it_was_written(tmp_path: Path) -> None:
    got: asyncio.Queue[agent_pb2.ToAgent] = asyncio.Queue()

    async def keep(peer: Peer) -> None:
        while True:
            got.put_nowait(await peer.receive())

    async with serving_agent(tmp_path, keep) as gateway, dial(gateway) as wire:
        wire.send(HELLO, starting("one"))
        # The first waits until the link to the agent is open, the second does not.
        for number in (1, 2):
            item = pb.Input(sequence=number, data=bytes([number]) * 100_000, end=number == 2)
            wire.writer.write(pack(write_input("one", item)))
            received = await got.get() if number == 2 else [await got.get(), await got.get()][1]
            assert received.call.frame == pb.CallFrame(call_id="one", input=item)
            assert received.call.fencing_token == 7


async def test_messages_may_arrive_a_byte_at_a_time(gateway: Path) -> None:
    async with dial(gateway) as wire:
        for message in (HELLO, starting("slow", arguments=b"whole")):
            for byte in pack(message.SerializeToString()):
                wire.writer.write(bytes([byte]))
                await wire.writer.drain()
        assert (await wire.receive()).events[0].output.data == b"whole"


async def test_another_protocol_is_refused_by_name(gateway: Path) -> None:
    async with dial(gateway) as wire:
        wire.send(pb.SocketHello(protocol=2))
        refused = await wire.receive()
        assert (refused.call_id, refused.error.reason) == ("", errors_pb2.ERROR_REASON_PROTOCOL_MISMATCH)
        assert await wire.ended()


@pytest.mark.parametrize(
    "sent", [pack(b"\xff\xff"), (MAX_SOCKET_MESSAGE + 1).to_bytes(4, "big")], ids=["no message", "too large"]
)
async def test_what_is_no_message_of_ours_ends_that_connection_alone(gateway: Path, sent: bytes) -> None:
    async with dial(gateway) as good, dial(gateway) as bad:
        good.send(HELLO)
        bad.send(HELLO)
        bad.writer.write(sent)
        assert await bad.ended()
        good.send(starting("still"))
        assert (await good.receive()).call_id == "still"


async def test_the_sdks_end_reads_what_the_gateway_sends(gateway: Path) -> None:
    stream = await connect(CallSocket, str(gateway), ())
    assert stream is not None
    await stream.write(starting("sdk", arguments=b"hello"))
    answer = await stream.read()
    assert answer is not None
    assert answer.batch.events[0].output.data == b"hello"
    await stream.done_writing()
    assert await stream.read() is None
    assert await connect(CallSocket, f"{gateway}-other", ()) is None


async def test_a_client_that_is_refused_learns_why(tmp_path: Path) -> None:
    @asynccontextmanager
    async def refuse(method: str, context: Context) -> AsyncGenerator[None]:
        shown = dict(context.invocation_metadata() or ()).get("authorization")
        if shown != "Bearer right":
            raise Unauthenticated(f"{shown!r} may not use {method}")
        yield

    async with serving(tmp_path / "g", refuse):
        stream = await connect(CallSocket, str(tmp_path / "g"), (("authorization", "Bearer wrong"),))
        assert stream is not None
        with pytest.raises(Unauthenticated, match=r"Bearer wrong.* may not use /sandmesh.*/Multiplex"):
            await stream.read()
        allowed = await connect(CallSocket, str(tmp_path / "g"), (("authorization", "Bearer right"),))
        assert allowed is not None
        await allowed.done_writing()
        assert await allowed.read() is None


async def test_the_end_of_a_gateway_ends_its_clients_and_leaves_no_socket(tmp_path: Path) -> None:
    async with serving(tmp_path / "g") as _, dial(tmp_path / "g") as silent:
        stream = await connect(CallSocket, str(tmp_path / "g"), ())
        assert stream is not None
        closing = asyncio.create_task(stream.read())
        assert (tmp_path / "g.calls").stat().st_mode & 0o777 == 0o600
    assert await closing is None
    assert await silent.ended()
    assert not (tmp_path / "g.calls").exists()


@asynccontextmanager
async def serving(path: Path, *arounds: Around) -> AsyncGenerator[None]:
    """Call sockets of a gateway that reaches no sandbox."""
    async with AsyncExitStack() as stack, asyncio.timeout(20):
        registration = Allocator(path).registration()
        upstream = await stack.enter_async_context(open_server([f"unix://{path}-i"], [registration]))
        channel = await stack.enter_async_context(open_channel(upstream.addresses[0]))
        routes = Routes(sandbox_pb2_grpc.SandboxServiceStub(channel), 1.0)

        def make(send: Callable[[bytes], None]) -> Client:
            return Client(routes.of(ADMIN), 1.0, send)

        await stack.enter_async_context(
            open_local_sockets([f"unix://{path}", "127.0.0.1:0"], [call_sockets(make, arounds)])
        )
        yield
