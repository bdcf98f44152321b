"""Links to sandboxes that wait in pools, opened before anybody has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.errors import SandboxLost
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.channels import open_channel
from sandmeshd.gateway import GatewaySettings, open_gateway
from sandmeshd.runtime.rpc.interceptors import Context
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server
from tests.middlebox import Middlebox, middlebox

from .stand_in import Allocator, Peer, agent, result


async def connect_session(
    request: session_pb2.ConnectSessionRequest, context: Context
) -> session_pb2.ConnectSessionResponse:
    """Grant a session what it requests: the slot that it names is the sandbox's id."""
    ready = sandbox_pb2.SANDBOX_STATE_READY
    lease = sandbox_pb2.Lease(fencing_token=9)
    sandboxes = {
        slot.slot: sandbox_pb2.Sandbox(sandbox_id=slot.slot, state=ready, session_key="of-somebody", lease=lease)
        for slot in request.slots
    }
    return session_pb2.ConnectSessionResponse(session=session_pb2.Session(sandboxes=sandboxes))


def broker() -> ServiceRegistration:
    """Return a broker's one method that is used as a service."""
    name = session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name
    take, answer = session_pb2.ConnectSessionRequest.FromString, session_pb2.ConnectSessionResponse.SerializeToString
    method = grpc.unary_unary_rpc_method_handler(connect_session, take, answer)
    handler = grpc.method_handlers_generic_handler(name, {"ConnectSession": method})
    return ServiceRegistration(name, lambda server: server.add_generic_rpc_handlers((handler,)))


class World:
    """A gateway with a broker, an allocator and the agent of one sandbox, which counts its links."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.allocator = Allocator(folder / "agent")
        self.greeted = asyncio.Semaphore(0)
        self.peers: list[Peer] = []
        self.calls: call_pb2_grpc.CallServiceAsyncStub
        self.sessions: session_pb2_grpc.SessionServiceAsyncStub

    async def serve(self, peer: Peer) -> None:
        """Answer each start with the token that came with it."""
        self.peers.append(peer)
        self.greeted.release()
        while True:
            frame = await peer.receive()
            if frame.call.frame.HasField("start"):
                begun = frame.call.frame.start
                peer.send_events(frame.channel, begun.call_id, result(1, str(begun.fencing_token)))
            elif frame.HasField("ping"):
                peer.send(agent_pb2.FromAgent(channel=frame.channel, done=agent_pb2.Done()))

    async def connect(self, *sandboxes: str) -> None:
        """Connect a session that is given sandboxes."""
        spec = sandbox_pb2.SandboxSpec(template="base")
        slots = [session_pb2.SlotSpec(slot=name, spec=spec) for name in sandboxes]
        request = session_pb2.ConnectSessionRequest(user_id="u", session_id="s", slots=slots)
        await self.sessions.ConnectSession(request)

    async def call(self) -> str:
        """Run a call without a token; gives the one that the agent was shown."""
        start = call_pb2.CallStart(sandbox_id="sb_one", tool="t")
        with translated():
            answers = [event async for event in self.calls.RunCall(call_pb2.RunCallRequest(start=start))]
        return answers[-1].batch.events[-1].result.message


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    services = [made.allocator.registration(), broker()]
    async with (
        asyncio.timeout(20),
        agent(tmp_path / "agent", made.serve),
        open_server([f"unix://{tmp_path}/i"], services) as upstream,
        open_channel(upstream.addresses[0]) as channel,
        open_gateway(GatewaySettings(listen=("127.0.0.1:0",)), channel, channel) as gateway,
        open_channel(gateway.addresses[0]) as client,
    ):
        made.calls = call_pb2_grpc.CallServiceStub(client)
        made.sessions = session_pb2_grpc.SessionServiceStub(client)
        yield made


async def test_the_first_call_of_who_takes_a_sandbox_from_its_pool_finds_an_open_link(world: World) -> None:
    await world.connect()
    world.allocator.pooled.put_nowait("sb_one")
    await world.greeted.acquire()
    await world.connect("sb_one")
    # With the token of the lease, which the link was opened without.
    assert [await world.call(), await world.call()] == ["9", "9"]
    assert (world.allocator.resolved, len(world.peers)) == (0, 1)


async def test_whose_a_sandbox_is_by_now_is_asked_before_its_link_that_was_opened_ahead_is_used(world: World) -> None:
    await world.connect()
    world.allocator.pooled.put_nowait("sb_one")
    await world.greeted.acquire()
    # Another gateway carried the answer that gave it to somebody.
    assert await world.call() == "7"
    assert (world.allocator.resolved, len(world.peers)) == (1, 1)


async def test_a_sandbox_that_died_in_its_pool_is_told_as_lost_by_who_knows_it(world: World) -> None:
    await world.connect()
    world.allocator.pooled.put_nowait("sb_one")
    await world.greeted.acquire()
    world.allocator.error = SandboxLost("sandbox sb_one is gone: it ended in its pool", {})
    with pytest.raises(SandboxLost, match="ended in its pool"):
        await world.call()


async def test_a_pool_is_watched_again_by_a_gateway_that_is_told_of_a_sandbox_that_it_cannot_reach(
    world: World,
) -> None:
    await world.connect()
    world.allocator.pooled.put_nowait("sb_other")
    # The agent there is another sandbox's, which ends that link and no other.
    await world.greeted.acquire()
    world.allocator.pooled.put_nowait("sb_one")
    await world.greeted.acquire()
    await world.connect("sb_one")
    assert await world.call() == "9"


async def test_a_gateway_that_connects_no_session_opens_no_links_ahead(world: World) -> None:
    world.allocator.pooled.put_nowait("sb_one")
    assert await world.call() == "7"
    assert (world.allocator.resolved, len(world.peers), world.allocator.pooled.qsize()) == (1, 1, 1)


@pytest.fixture
async def between(world: World) -> AsyncIterator[Middlebox]:
    """Have the agent be elsewhere, behind what this gives."""
    async with middlebox(world.folder / "agent") as made:
        world.allocator.endpoint = made.endpoint
        yield made


async def wait_in_pool(world: World) -> None:
    """Return when a link is open ahead to a sandbox in a pool."""
    await world.connect()
    world.allocator.pooled.put_nowait("sb_one")
    await world.greeted.acquire()
    # The agent's hello is on its way, of whose arrival nobody is told.
    await asyncio.sleep(0.1)


@pytest.mark.usefixtures("between")
async def test_the_first_call_to_an_agent_elsewhere_finds_an_open_link_too(world: World) -> None:
    await wait_in_pool(world)
    await world.connect("sb_one")
    assert [await world.call(), await world.call()] == ["9", "9"]
    assert (world.allocator.resolved, len(world.peers)) == (0, 1)


async def test_a_first_call_waits_a_moment_for_a_link_that_something_between_forgot(
    world: World, between: Middlebox
) -> None:
    await wait_in_pool(world)
    between.forget()
    await world.connect("sb_one")
    # Less than a silence that ends links.
    async with asyncio.timeout(5):
        assert await world.call() == "7"
    assert (world.allocator.resolved, len(world.peers)) == (1, 2)


async def test_a_link_that_something_between_forgot_is_replaced_for_who_comes_by_another_gateway(
    world: World, between: Middlebox
) -> None:
    await wait_in_pool(world)
    between.forget()
    async with asyncio.timeout(5):
        assert await world.call() == "7"
    assert len(world.peers) == 2


async def test_a_link_ahead_to_an_agent_elsewhere_that_broke_is_opened_again(world: World, between: Middlebox) -> None:
    await wait_in_pool(world)
    between.cut()
    await world.greeted.acquire()
    await world.connect("sb_one")
    assert await world.call() == "9"
    assert len(world.peers) == 2


async def test_no_link_is_opened_ahead_through_a_clouds_gateway(world: World, between: Middlebox) -> None:
    await world.connect()
    here, world.allocator.endpoint = world.allocator.endpoint, "wss://127.0.0.1:1/"
    world.allocator.pooled.put_nowait("sb_other")
    await asyncio.sleep(0.1)
    world.allocator.endpoint = here
    assert await world.call() == "7"
    assert (between.accepted, len(world.peers)) == (1, 1)
