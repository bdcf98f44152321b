"""Responses to calls of one client that leave together."""

from __future__ import annotations

import pytest

from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc

from .test_gateway import World, echo_agent, start, world

__all__ = ["world"]


@pytest.mark.parametrize("takes_more", [False, True])
async def test_responses_that_wait_leave_as_one_for_a_client_that_takes_more(world: World, takes_more: bool) -> None:
    stub = call_pb2_grpc.CallServiceStub(await world.open(echo_agent))
    stream = stub.Multiplex()
    frames = [call_pb2.CallFrame(call_id=name, start=start(name, "")) for name in ("a", "b", "c")]
    await stream.write(call_pb2.MultiplexRequest(frames=frames, takes_more=takes_more))
    first = await stream.read()
    assert isinstance(first, call_pb2.MultiplexResponse)
    assert [batch.call_id for batch in (first.batch, *first.more)] == (["a", "b", "c"] if takes_more else ["a"])
    stream.cancel()
