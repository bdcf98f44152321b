"""One relayed call, its subscriber in the test's own hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import InvalidArgument, SandmeshError
from sandmeshd.auth.channels import open_channel
from sandmeshd.auth.principal import ADMIN
from sandmeshd.gateway.calls.relay import Relay, join
from sandmeshd.gateway.routes.routes import Routes
from sandmeshd.runtime.rpc.server import open_server

from .stand_in import Allocator, Peer, agent, output, result


class Caller:
    """Detaches as soon as a response comes that it was to wait for."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.over: asyncio.Future[SandmeshError | None] = asyncio.get_running_loop().create_future()

    def deliver(self, call: Relay, response: bytes, last_sequence: int) -> None:
        if last_sequence == self.last:
            call.detach()

    def ended(self, call: Relay, error: SandmeshError | None) -> None:
        self.over.set_result(error)


async def echo(peer: Peer) -> None:
    while True:
        message = await peer.receive()
        begun = message.call.frame.start
        if message.call.frame.HasField("start"):
            peer.send_events(message.channel, begun.call_id, output(1, "x"), result(2))


@pytest.fixture
async def routes(tmp_path: Path) -> AsyncIterator[Routes]:
    """Routes to sb_one, whose agent ends each call with its first batch."""
    async with AsyncExitStack() as stack, asyncio.timeout(20):
        await stack.enter_async_context(agent(tmp_path / "agent", echo))
        registration = Allocator(tmp_path / "agent").registration()
        upstream = await stack.enter_async_context(open_server([f"unix://{tmp_path}/i"], [registration]))
        channel = await stack.enter_async_context(open_channel(upstream.addresses[0]))
        opened = Routes(sandbox_pb2_grpc.SandboxServiceStub(channel), 5.0)
        stack.callback(opened.close)
        yield opened


@pytest.mark.parametrize("last", [2, 0], ids=["detaches within it", "stays"])
async def test_a_call_is_followed_until_its_last_response_whoever_detaches_then(routes: Routes, last: int) -> None:
    for call_id in ("waits for a link", "finds it open"):
        caller = Caller(last)
        relay = Relay(routes.of(ADMIN), caller, call_id)
        start = pb.CallStart(sandbox_id="sb_one", call_id=call_id, tool="t")
        relay.open(pb.CallFrame(call_id=call_id, start=start), 1.0)
        assert routes.metrics.followed == 1
        assert await caller.over is None
        assert (relay.over, routes.metrics.followed) == (True, 0)


@pytest.mark.parametrize(
    "frame",
    [pb.CallFrame(call_id="c", cancel=pb.Cancel()), pb.CallFrame(call_id="c", start=pb.CallStart(tool="t"))],
    ids=["another frame", "no sandbox"],
)
async def test_a_call_that_begins_with_no_sandbox_is_refused(routes: Routes, frame: pb.CallFrame) -> None:
    caller = Caller(1)
    Relay(routes.of(ADMIN), caller, frame.call_id).open(frame, 1.0)
    assert isinstance(await caller.over, InvalidArgument)
    assert routes.metrics.followed == 0


def test_joined_responses_are_the_batches_of_all_in_order() -> None:
    made = [pb.MultiplexResponse(batch=pb.CallEventBatch(call_id=name)).SerializeToString() for name in ("a", "b", "c")]
    joined = pb.MultiplexResponse.FromString(join([b"", made[0], b"", *made[1:]]))
    assert [batch.call_id for batch in (joined.batch, *joined.more)] == ["a", "b", "c"]
    assert join([b"", b""]) == b""
