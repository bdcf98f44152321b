"""An agent's link that is open but dead."""

from __future__ import annotations

import asyncio
import time

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc

from .stand_in import Peer, output, result
from .test_gateway import World, start, world

__all__ = ["world"]


async def test_a_silent_link_is_replaced_and_the_call_goes_on(world: World) -> None:
    received: list[str | None] = []
    links = 0

    async def script(peer: Peer) -> None:
        nonlocal links
        links += 1
        first = await peer.receive()
        if links == 1:
            assert first.call.frame.HasField("start")
            peer.send_events(first.channel, "c1", output(1, "one"))
            while True:
                received.append((await peer.receive()).WhichOneof("body"))
        assert first.call.frame.attach.after_sequence == 1
        peer.send_events(first.channel, "c1", result(2))
        await peer.receive()

    channel = await world.open(script, agent_silence_seconds=1.0)
    request = call_pb2.RunCallRequest(start=start())
    answers = call_pb2_grpc.CallServiceStub(channel).RunCall(request)
    events = [event async for answer in answers for event in answer.batch.events]
    assert [event.sequence for event in events] == [1, 2]
    assert links == 2
    assert "ping" in received


async def test_what_holds_up_the_gateway_itself_is_no_silence_of_its_agents(world: World) -> None:
    links = 0

    async def script(peer: Peer) -> None:
        nonlocal links
        links += 1
        channel = (await peer.receive()).channel
        if links == 1:
            # Nothing in this process goes on meanwhile.
            time.sleep(2.5)  # noqa: ASYNC251 - as a machine that has no time for it
        while not (received := await peer.receive()).HasField("ping"):
            pass
        peer.send(agent_pb2.FromAgent(channel=received.channel, done=agent_pb2.Done()))
        peer.send_events(channel, "c1", result(1))
        await peer.receive()

    channel = await world.open(script, agent_silence_seconds=1.0)
    answers = call_pb2_grpc.CallServiceStub(channel).RunCall(call_pb2.RunCallRequest(start=start()))
    events = [event async for answer in answers for event in answer.batch.events]
    assert events[-1].HasField("result")
    assert links == 1


async def test_a_link_that_answers_is_kept_however_long_the_call_is_quiet(world: World) -> None:
    async def script(peer: Peer) -> None:
        pings = 0
        channel = (await peer.receive()).channel
        while True:
            frame = await peer.receive()
            if frame.HasField("ping"):
                pings += 1
                peer.send(agent_pb2.FromAgent(channel=frame.channel, done=agent_pb2.Done()))
            if pings == 5:
                peer.send_events(channel, "c1", result(1))

    channel = await world.open(script, agent_silence_seconds=1.0)
    request = call_pb2.RunCallRequest(start=start())
    async with asyncio.timeout(30):
        answers = call_pb2_grpc.CallServiceStub(channel).RunCall(request)
        events = [event async for answer in answers for event in answer.batch.events]
    assert events[-1].HasField("result")
    assert world.allocator.resolved == 1
