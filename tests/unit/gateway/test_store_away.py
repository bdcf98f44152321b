"""The store away while a call looks for its sandbox: it waits for a while, and then says what to do."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.errors import MeshUnavailable, Recovering, SandmeshError, StoreUnavailable
from sandmesh.shared.wire_errors import translated

from .stand_in import Peer, output, result
from .test_gateway import World, echo_agent, start, world

__all__ = ["world"]

AWAY = StoreUnavailable("the store does not answer: away; check that its server runs, then try again", {"detail": "-"})
ERRORS: tuple[SandmeshError, ...] = (AWAY, Recovering("records are rebuilt"), MeshUnavailable("no allocator"))


async def _events(channel: grpc.aio.Channel, seconds: float | None = None) -> list[call_pb2.CallEvent]:
    stub = call_pb2_grpc.CallServiceStub(channel)
    timeout = None if seconds is None else Duration(nanos=round(seconds * 1e9))
    request = call_pb2.RunCallRequest(start=start(arguments=b"{}", timeout=timeout))
    with translated():
        return [event async for answer in stub.RunCall(request) for event in answer.batch.events]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_call_waits_for_a_store_that_is_away_for_a_moment(world: World, error: SandmeshError) -> None:
    channel = await world.open(echo_agent)
    world.allocator.error = error
    calls = [asyncio.create_task(_events(channel)) for _ in range(3)]
    await world.allocator.until_resolved(3)
    assert not any(call.done() for call in calls)
    world.allocator.error = None
    for events in await asyncio.gather(*calls):
        assert [event.WhichOneof("event") for event in events] == ["output", "result"]


async def test_a_call_does_not_wait_for_a_store_beyond_its_own_timeout(world: World) -> None:
    channel = await world.open(echo_agent, deadline_grace_seconds=60.0)
    world.allocator.error = AWAY
    with pytest.raises(StoreUnavailable, match="check that its server runs, then try again"):
        await _events(channel, seconds=0.4)
    assert world.allocator.resolved > 1


async def test_a_call_whose_link_breaks_while_the_store_is_away_is_not_told_that_its_sandbox_is_lost(
    world: World,
) -> None:
    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        world.allocator.error = AWAY
        peer.send_events(frame.channel, frame.call.frame.start.call_id, output(1, "a"))
        await peer.writer.drain()

    channel = await world.open(script, deadline_grace_seconds=60.0)
    with pytest.raises(StoreUnavailable, match="check that its server runs"):
        await _events(channel, seconds=0.4)


async def test_a_call_whose_link_breaks_goes_on_where_the_store_comes_back(world: World) -> None:
    async def script(peer: Peer) -> None:
        frame = await peer.receive()
        if frame.call.frame.HasField("start"):
            world.allocator.error = AWAY
            peer.send_events(frame.channel, frame.call.frame.start.call_id, output(1, "a"))
            await peer.writer.drain()
        else:
            peer.send_events(frame.channel, frame.call.frame.attach.call_id, result(2))
            await peer.receive()

    channel = await world.open(script)
    call = asyncio.create_task(_events(channel))
    await world.allocator.until_resolved(3)
    world.allocator.error = None
    assert [event.sequence for event in await call] == [1, 2]
