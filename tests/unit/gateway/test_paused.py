"""Calls to a paused sandbox, whose agent answers nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.errors import WrongState
from sandmesh.shared.wire_errors import translated

from .stand_in import Peer, result
from .test_gateway import World, echo_agent, start, world

__all__ = ["world"]

PAUSE = sandbox_pb2.PauseSandboxRequest(sandbox_id="sb_one", fencing_token=7)
RESUME = sandbox_pb2.ResumeSandboxRequest(sandbox_id="sb_one", fencing_token=7)


async def _call(channel: grpc.aio.Channel, call_id: str) -> int:
    """Run a call; return the number of its events."""
    request = call_pb2.RunCallRequest(start=start(call_id))
    with translated():
        answers = call_pb2_grpc.CallServiceStub(channel).RunCall(request)
        return len([event async for answer in answers for event in answer.batch.events])


async def test_a_call_to_a_paused_sandbox_is_refused_at_once_and_runs_when_it_is_resumed(world: World) -> None:
    started: list[str] = []

    async def script(peer: Peer) -> None:
        while True:
            frame = await peer.receive()
            if frame.call.frame.HasField("start"):
                started.append(frame.call.frame.call_id)
                peer.send_events(frame.channel, frame.call.frame.call_id, result(1))

    channel = await world.open(script)
    sandboxes = sandbox_pb2_grpc.SandboxServiceStub(channel)
    assert await _call(channel, "before") == 1
    await sandboxes.PauseSandbox(PAUSE)
    for _ in range(2):
        with pytest.raises(WrongState, match="resume it") as caught:
            await _call(channel, "refused")
        assert caught.value.facts == {"state": "PAUSED"}
    await sandboxes.ResumeSandbox(RESUME)
    assert await _call(channel, "after") == 1
    assert started == ["before", "after"]


async def test_a_call_under_way_is_kept_for_as_long_as_its_sandbox_is_paused(world: World) -> None:
    resumed = asyncio.Event()
    links = 0

    async def script(peer: Peer) -> None:
        nonlocal links
        links += 1
        channel = (await peer.receive()).channel
        await resumed.wait()
        peer.send_events(channel, "c1", result(1))
        await peer.receive()

    channel = await world.open(script, agent_silence_seconds=0.4)
    running = asyncio.create_task(_call(channel, "c1"))
    await world.allocator.until_resolved(1)
    # By way of another gateway: this one learns it when the agent is silent.
    world.allocator.error = WrongState("it is paused: resume it", {"state": "PAUSED"})
    await world.allocator.until_resolved(8)
    with pytest.raises(WrongState, match="resume it"):
        await _call(channel, "refused")
    assert not running.done()
    # The resumed agent has time to answer a ping.
    world.allocator.error = None
    await world.allocator.until_resolved(world.allocator.resolved + 1)
    resumed.set()
    assert await running == 1
    assert links == 1


async def test_a_sandbox_that_was_resumed_elsewhere_is_called_again(world: World) -> None:
    channel = await world.open(echo_agent)
    assert await _call(channel, "before") == 2
    await sandbox_pb2_grpc.SandboxServiceStub(channel).PauseSandbox(PAUSE)
    world.allocator.error = None
    assert await _call(channel, "after") == 2


async def test_a_sandbox_that_was_paused_before_its_first_call_reached_it_is_paused_and_not_lost(
    world: World, tmp_path: Path
) -> None:
    def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    channel = await world.open(echo_agent, connect_timeout_seconds=0.3)
    async with await asyncio.start_unix_server(answer_nothing, tmp_path / "frozen"):
        world.allocator.endpoint = f"unix://{tmp_path}/frozen"
        calling = asyncio.create_task(_call(channel, "c1"))
        await world.allocator.until_resolved(1)
        world.allocator.error = WrongState("it is paused: resume it", {"state": "PAUSED"})
        with pytest.raises(WrongState, match="resume it"):
            await calling
        for writer in writers:
            writer.close()
