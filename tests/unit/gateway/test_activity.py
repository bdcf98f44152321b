"""What the gateway tells of use."""

from __future__ import annotations

import asyncio

from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from tests.unit.gateway.stand_in import Peer, result
from tests.unit.gateway.test_gateway import World, start, world

__all__ = ["world"]


async def test_an_open_call_is_reported_again_and_again_and_one_that_ended_no_more(world: World) -> None:
    finish = asyncio.Event()

    async def slow_agent(peer: Peer) -> None:
        frame = await peer.receive()
        await finish.wait()
        peer.send_events(frame.channel, frame.call.frame.start.call_id, result(1))
        await peer.receive()

    stub = call_pb2_grpc.CallServiceStub(await world.open(slow_agent, activity_seconds=0.02))
    call = stub.RunCall(call_pb2.RunCallRequest(start=start()))
    reports = world.allocator.reports
    for _ in range(3):
        assert await reports.get() == ["sb_one"]
    finish.set()
    assert [response async for response in call]
    # What was used since the last report is told once more; then there is nothing to tell.
    silent = False
    while not silent:
        try:
            async with asyncio.timeout(0.5):
                await reports.get()
        except TimeoutError:
            silent = True
    assert reports.empty()
