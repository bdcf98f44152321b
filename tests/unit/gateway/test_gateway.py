"""The gateway over real gRPC and real sockets, with an agent that does what each test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import SecretStr

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.errors.v1 import errors_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.errors import (
    DeadlineExceeded,
    InvalidArgument,
    MethodNotFound,
    SandboxLost,
    SandboxNotFound,
    Unauthenticated,
)
from sandmesh.shared.wire_errors import from_rpc_error, translated
from sandmeshd.auth.channels import open_channel
from sandmeshd.gateway import GatewaySettings, open_gateway
from sandmeshd.runtime.rpc.server import open_server

from .stand_in import Allocator, Peer, Script, agent, output, result


class World:
    """A gateway with an allocator, and an agent for one sandbox."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "agent"
        self.allocator = Allocator(self.socket)
        self.stack = AsyncExitStack()
        self.folder = folder

    async def open(self, script: Script, **settings: object) -> grpc.aio.Channel:
        enter = self.stack.enter_async_context
        await enter(agent(self.socket, script))
        upstream = await enter(open_server([f"unix://{self.folder}/i"], [self.allocator.registration()]))
        channel = await enter(open_channel(upstream.addresses[0]))
        spec = GatewaySettings.model_validate({"listen": ("127.0.0.1:0",), **settings})
        listening = await enter(open_gateway(spec, channel, channel))
        return await enter(open_channel(listening.addresses[0]))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    try:
        async with asyncio.timeout(20):
            yield made
    finally:
        await made.stack.aclose()


def start(call_id: str = "c1", sandbox_id: str = "sb_one", **fields: object) -> call_pb2.CallStart:
    return call_pb2.CallStart(sandbox_id=sandbox_id, call_id=call_id, tool="t", **fields)  # type: ignore[arg-type]


async def echo_agent(peer: Peer) -> None:
    """Answer each start with its arguments and a result."""
    while True:
        frame = await peer.receive()
        if frame.call.frame.HasField("start"):
            begun = frame.call.frame.start
            text = begun.arguments.decode() or "-"
            peer.send_events(frame.channel, begun.call_id, output(1, text), result(2, str(begun.fencing_token)))


async def test_run_call_streams_events_and_fills_in_the_lease_token(world: World) -> None:
    stub = call_pb2_grpc.CallServiceStub(await world.open(echo_agent))
    answers = [a async for a in stub.RunCall(call_pb2.RunCallRequest(start=start("", arguments=b"{}")))]
    events = [event for answer in answers for event in answer.batch.events]
    assert [event.WhichOneof("event") for event in events] == ["output", "result"]
    assert events[1].result.message == "7"


async def test_a_link_is_opened_once_for_many_calls(world: World) -> None:
    stub = call_pb2_grpc.CallServiceStub(await world.open(echo_agent))

    async def one(number: int) -> int:
        answers = stub.RunCall(call_pb2.RunCallRequest(start=start(f"c{number}")))
        return len([answer async for answer in answers])

    counts = await asyncio.gather(*(one(number) for number in range(20)))
    assert counts == [1] * 20
    assert world.allocator.resolved == 1


async def test_an_unknown_sandbox_is_the_same_exception_on_a_stream_of_its_own(world: World) -> None:
    stub = call_pb2_grpc.CallServiceStub(await world.open(echo_agent))
    answers = aiter(stub.RunCall(call_pb2.RunCallRequest(start=start(sandbox_id="sb_other"))))
    with pytest.raises(SandboxNotFound) as caught, translated():
        await anext(answers)
    assert caught.value.facts["sandbox_id"] == "sb_other"


async def test_a_refused_call_leaves_the_others_of_a_multiplexed_stream(world: World) -> None:
    stub = call_pb2_grpc.CallServiceStub(await world.open(echo_agent))
    stream = stub.Multiplex()
    frames = [
        call_pb2.CallFrame(call_id="bad", start=start("bad", "sb_other")),
        call_pb2.CallFrame(call_id="worse", start=start("worse", "")),
        call_pb2.CallFrame(call_id="good", start=start("good", arguments=b"hello")),
    ]
    await stream.write(call_pb2.MultiplexRequest(frames=frames))
    batches: dict[str, call_pb2.CallEventBatch] = {}
    while len(batches) < 3:
        answer = await stream.read()
        assert isinstance(answer, call_pb2.MultiplexResponse)
        batches[answer.batch.call_id] = answer.batch
    assert batches["bad"].error.reason == errors_pb2.ERROR_REASON_SANDBOX_NOT_FOUND
    assert batches["worse"].error.reason == errors_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert batches["good"].events[0].output.data == b"hello"
    stream.cancel()


async def test_a_broken_link_is_mended_and_the_call_goes_on_after_its_last_event(world: World) -> None:
    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        if frame.call.frame.HasField("start"):
            peer.send_events(frame.channel, "c1", output(1, "a"), output(2, "b"))
            await peer.writer.drain()
            return
        attach = frame.call.frame.attach
        assert (attach.after_sequence, attach.fencing_token) == (2, 7)
        peer.send_events(frame.channel, "c1", output(3, "c"), result(4))
        await peer.receive()

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    events = [
        event async for answer in stub.RunCall(call_pb2.RunCallRequest(start=start())) for event in answer.batch.events
    ]
    assert [event.sequence for event in events] == [1, 2, 3, 4]


async def test_a_link_that_cannot_be_opened_again_at_once_is_tried_again_while_its_sandbox_lives(world: World) -> None:
    aside = world.allocator.path.with_suffix(".aside")

    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        if frame.call.frame.HasField("attach"):
            peer.send_events(frame.channel, "c1", result(2))
            await peer.receive()
        peer.send_events(frame.channel, "c1", output(1, "a"))
        await peer.writer.drain()
        world.allocator.path.rename(aside)

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    answers = aiter(stub.RunCall(call_pb2.RunCallRequest(start=start())))
    sequences = [event.sequence for event in (await anext(answers)).batch.events]
    async with asyncio.timeout(20):
        await world.allocator.until_resolved(4)
        aside.rename(world.allocator.path)
        sequences += [event.sequence async for answer in answers for event in answer.batch.events]
    assert sequences == [1, 2]


async def test_a_sandbox_that_ends_under_a_call_is_told_with_its_reason(world: World) -> None:
    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        peer.send_events(frame.channel, "c1", output(1, "a"))
        await peer.writer.drain()
        world.allocator.error = SandboxLost("it ended", {"detail": "signal 9"})

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    answers = aiter(stub.RunCall(call_pb2.RunCallRequest(start=start())))
    assert [event.sequence for event in (await anext(answers)).batch.events] == [1]
    with pytest.raises(SandboxLost) as caught, translated():
        await anext(answers)
    assert caught.value.facts["detail"] == "signal 9"


async def test_arguments_that_do_not_fit_a_frame_pass_in_chunks(world: World) -> None:
    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        begun = frame.call.frame.start
        got = begun.arguments
        while len(got) < begun.arguments_size:
            got += (await peer.receive()).call.frame.argument_chunk.data
        peer.send_events(frame.channel, "c1", result(1, str(len(got))))
        await peer.receive()

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    request = call_pb2.RunCallRequest(start=start(arguments=b"x" * 3_500_000))
    answers = [answer async for answer in stub.RunCall(request)]
    assert answers[-1].batch.events[-1].result.message == "3500000"


async def test_arguments_may_be_text_and_pass_in_chunks_too(world: World) -> None:
    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        begun = frame.call.frame.start
        got = begun.arguments
        while len(got) < begun.arguments_size:
            got += (await peer.receive()).call.frame.argument_chunk.data
        peer.send_events(frame.channel, "c1", result(1, f"{len(got)} {begun.arguments_json!r}"))
        await peer.receive()

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    request = call_pb2.RunCallRequest(start=start(arguments_json="ä" * 1_500_000))
    answers = [answer async for answer in stub.RunCall(request)]
    assert answers[-1].batch.events[-1].result.message == "3000000 ''"


@pytest.mark.parametrize("other", [{"arguments": b"{}"}, {"arguments_size": 2}])
async def test_arguments_as_text_and_as_bytes_together_are_refused(world: World, other: dict[str, Any]) -> None:
    stub = call_pb2_grpc.CallServiceStub(await world.open(echo_agent))
    with pytest.raises(InvalidArgument, match="not both"), translated():
        await anext(aiter(stub.RunCall(call_pb2.RunCallRequest(start=start(arguments_json="{}", **other)))))


async def test_an_agent_that_misses_a_deadline_is_told_to_cancel(world: World) -> None:
    cancelled = asyncio.Event()

    async def script(peer: Peer) -> None:
        while not (await peer.receive()).call.frame.HasField("cancel"):
            pass
        cancelled.set()

    stub = call_pb2_grpc.CallServiceStub(await world.open(script, deadline_grace_seconds=0.05))
    begun = start()
    begun.timeout.FromMilliseconds(50)
    answers = aiter(stub.RunCall(call_pb2.RunCallRequest(start=begun)))
    with pytest.raises(DeadlineExceeded), translated():
        await anext(answers)
    await cancelled.wait()


async def test_run_call_acknowledges_what_the_caller_took(world: World) -> None:
    acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        peer.send_events(frame.channel, "c1", output(1, "a"))
        acknowledged.set_result((await peer.receive()).call.frame.acknowledge.sequence)
        peer.send_events(frame.channel, "c1", result(2))
        await peer.receive()

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    answers = [answer async for answer in stub.RunCall(call_pb2.RunCallRequest(start=start()))]
    assert len(answers) == 2
    assert await acknowledged == 1


async def test_input_that_was_lost_with_a_link_holds_no_later_input_back(world: World) -> None:
    parts = 30

    async def script(peer: Peer) -> None:
        first = await peer.receive()
        again = first.call.frame.HasField("attach")
        if again:
            taken = call_pb2.CallEventBatch(call_id="c1", input_taken_sequence=2)
            peer.send(agent_pb2.FromAgent(channel=first.channel, batch=taken.SerializeToString()))
        sequence = 0
        while sequence < (parts if again else 5):
            sequence = (await peer.receive()).call.frame.input.sequence
            if again:
                took = call_pb2.CallEventBatch(call_id="c1", input_ack_sequence=sequence)
                peer.send(agent_pb2.FromAgent(channel=first.channel, batch=took.SerializeToString()))
        if again:
            peer.send_events(first.channel, "c1", result(1))
            await peer.receive()

    async def frames() -> AsyncIterator[call_pb2.OpenCallRequest]:
        yield call_pb2.OpenCallRequest(frame=call_pb2.CallFrame(call_id="c1", start=start(takes_input=True)))
        for number in range(1, parts + 1):
            item = call_pb2.Input(sequence=number, data=bytes(1 << 20), end=number == parts)
            yield call_pb2.OpenCallRequest(frame=call_pb2.CallFrame(call_id="c1", input=item))

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    answers = [answer async for answer in stub.OpenCall(frames())]
    assert answers[0].batch.input_taken_sequence == 2
    assert answers[-1].batch.events[-1].HasField("result")


async def test_a_stream_gives_credit_for_what_was_written_and_acknowledges_none(world: World) -> None:
    received: asyncio.Future[call_pb2.Acknowledge] = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        if frame.call.frame.HasField("start"):
            peer.send_events(frame.channel, "c1", output(1, "a"))
            received.set_result((await peer.receive()).call.frame.acknowledge)
            return
        assert (frame.call.frame.attach.after_sequence, frame.call.frame.attach.keep) == (1, True)
        peer.send_events(frame.channel, "c1", result(2))
        await peer.receive()

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    assert len([answer async for answer in stub.RunCall(call_pb2.RunCallRequest(start=start()))]) == 2
    assert await received == call_pb2.Acknowledge(sequence=1, keep=True)


async def test_an_agent_is_not_told_what_its_result_settled(world: World) -> None:
    heard: list[str | None] = []

    async def script(peer: Peer) -> None:
        while len(heard) < 2:
            frame = await peer.receive()
            heard.append(frame.call.frame.WhichOneof("frame"))
            peer.send_events(frame.channel, frame.call.frame.call_id, output(1, "a"), result(2))

    stream = call_pb2_grpc.CallServiceStub(await world.open(script)).Multiplex()
    for call_id in ("c1", "c2"):
        await stream.write(
            call_pb2.MultiplexRequest(frames=[call_pb2.CallFrame(call_id=call_id, start=start(call_id))])
        )
        await stream.read()
        frame = call_pb2.CallFrame(call_id=call_id, acknowledge=call_pb2.Acknowledge(sequence=2))
        await stream.write(call_pb2.MultiplexRequest(frames=[frame]))
    assert heard == ["start", "start"]
    stream.cancel()


async def test_a_client_that_goes_away_detaches_its_calls(world: World) -> None:
    detached = asyncio.Event()

    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        peer.send_events(frame.channel, "c1", output(1, "a"))
        while not (await peer.receive()).call.frame.HasField("detach"):
            pass
        detached.set()

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    stream = stub.Multiplex()
    await stream.write(call_pb2.MultiplexRequest(frames=[call_pb2.CallFrame(call_id="c1", start=start())]))
    await stream.read()
    stream.cancel()
    await detached.wait()


async def test_unary_questions_reach_the_agent(world: World) -> None:
    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        tools = call_pb2.ListToolsResponse(tools=[call_pb2.Tool(name="t")]).SerializeToString()
        peer.send(agent_pb2.FromAgent(channel=frame.channel, tools=tools))
        frame = await peer.receive()
        assert frame.call.frame.signal.number == 2
        peer.send(agent_pb2.FromAgent(channel=frame.channel, done=agent_pb2.Done()))
        frame = await peer.receive()
        done = agent_pb2.Done(input_ack_sequence=frame.call.frame.input.sequence)
        peer.send(agent_pb2.FromAgent(channel=frame.channel, done=done))
        await peer.receive()

    stub = call_pb2_grpc.CallServiceStub(await world.open(script))
    tools = await stub.ListTools(call_pb2.ListToolsRequest(sandbox_id="sb_one"))
    assert [tool.name for tool in tools.tools] == ["t"]
    signal = call_pb2.Signal(number=2)
    await stub.SignalCall(call_pb2.SignalCallRequest(sandbox_id="sb_one", call_id="c1", signal=signal))
    data = call_pb2.Input(sequence=3, data=b"x")
    sent = await stub.SendInput(call_pb2.SendInputRequest(sandbox_id="sb_one", call_id="c1", input=data))
    assert sent.input_ack_sequence == 3


async def test_only_public_methods_of_other_services_pass(world: World) -> None:
    stub = sandbox_pb2_grpc.SandboxServiceStub(await world.open(echo_agent))
    found = await stub.GetSandbox(sandbox_pb2.GetSandboxRequest(sandbox_id="sb_one"))
    assert found.sandbox.sandbox_id == "sb_one"
    with pytest.raises(MethodNotFound), translated():
        await stub.ResolveSandbox(sandbox_pb2.ResolveSandboxRequest(sandbox_id="sb_one"))
    assert world.allocator.resolved == 0


async def test_a_missing_required_field_is_named(world: World) -> None:
    stub = call_pb2_grpc.CallServiceStub(await world.open(echo_agent))
    with pytest.raises(InvalidArgument, match="sandbox_id"), translated():
        await stub.ListTools(call_pb2.ListToolsRequest())


async def test_a_token_is_asked_for_on_tcp_and_health_stays_open(world: World) -> None:
    channel = await world.open(echo_agent, bearer_token=SecretStr("sesame"))
    stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
    request = sandbox_pb2.GetSandboxRequest(sandbox_id="sb_one")
    for metadata in ((), (("authorization", "Bearer wrong"),)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetSandbox(request, metadata=metadata)
        assert isinstance(from_rpc_error(caught.value), Unauthenticated)
    assert (await stub.GetSandbox(request, metadata=(("authorization", "Bearer sesame"),))).HasField("sandbox")
    health: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert await health(b"") == b"\x08\x01"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.1.2.3:80", "example.org:80"])
async def test_an_address_beyond_loopback_is_refused(world: World, address: str) -> None:
    with pytest.raises(InvalidArgument, match="TLS"):
        await world.open(echo_agent, listen=(address,))
