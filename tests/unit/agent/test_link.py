"""Links to the call dispatcher over real sockets, with tools that do what the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandmesh import errors
from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.errors.v1 import errors_pb2
from sandmesh.shared import frames
from sandmesh.tools import RunShellCommand
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import CHUNK, SMALLEST_READ, Outcome, RunningCall, Timeouts
from sandmeshd.agent.calls.dispatcher import AgentIdentity, CallPolicy, Dispatcher, Retention
from sandmeshd.agent.calls.spill import Disk
from sandmeshd.agent.calls.toolbox import Toolbox
from sandmeshd.agent.link.link import serve_links

from .client import SANDBOX, TOKEN, Channel, Client, connect, hello

LEASE = 7


@dataclass
class World:
    """An dispatcher that listens, and what its tools did."""

    path: str
    dispatcher: Dispatcher
    ran: list[str] = field(default_factory=list[str])
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, command: RunShellCommand, call: RunningCall) -> Outcome:
        """Run the command, by its first word."""
        word, _, rest = command.command.partition(" ")
        self.ran.append(command.command)
        call.started(1)
        acts: dict[str, Callable[[RunningCall, str], Awaitable[None]]] = {
            "write": write,
            "wait": self.wait,
            "stay": stay,
            "fail": fail,
        }
        await acts[word](call, rest)
        self.finished.set()
        return Outcome(exit_code=0, reason=call.stop_reason or pb.END_REASON_EXITED)

    async def wait(self, call: RunningCall, _: str) -> None:
        await self.goes_on.wait()
        call.output(pb.STREAM_STDOUT, b"went on")


async def write(call: RunningCall, size: str) -> None:
    """Write so many bytes, as fast as there is room."""
    left = int(size)
    while left:
        while call.room < SMALLEST_READ:
            await call.roomier()
        piece = min(call.room, CHUNK, left)
        call.output(pb.STREAM_STDOUT, bytes(piece))
        left -= piece
        await asyncio.sleep(0)


async def stay(call: RunningCall, _: str) -> None:
    """Run until the call is stopped."""
    stopped = asyncio.Event()
    with call.stopping(stopped.set):
        await stopped.wait()


async def fail(_: RunningCall, message: str) -> None:
    """Fail as at a mistake of the user."""
    raise ToolFailure(message)


MakeWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def make_world(tmp_path: Path) -> AsyncGenerator[MakeWorld]:
    """Return what serves an dispatcher."""
    servers: list[tuple[asyncio.Server, Dispatcher]] = []

    async def make(
        retention: Retention | None = None, timeouts: Timeouts | None = None, disk: Disk | None = None
    ) -> World:
        identity = AgentIdentity(SANDBOX, TOKEN, "test")
        dispatcher = Dispatcher(
            identity, LEASE, lambda: tools, CallPolicy(retention or Retention(), timeouts or Timeouts(), disk)
        )
        world = World(str(tmp_path / f"agent{len(servers)}.sock"), dispatcher)
        tools = Toolbox({RunShellCommand: world.run}, ["generic"])
        loop = asyncio.get_running_loop()
        servers.append((await loop.create_unix_server(serve_links(dispatcher), world.path), dispatcher))
        return world

    yield make
    for server, dispatcher in servers:
        server.close()
        await dispatcher.close()


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    """An dispatcher with the defaults."""
    return await make_world()


@pytest.fixture
async def client(world: World) -> AsyncGenerator[Client]:
    """A link to it."""
    async with asyncio.timeout(30), connect(world.path) as opened:
        yield opened


def start(client: Client, command: str, **envelope: Any) -> Channel:
    """Start a call with the lease's token."""
    arguments = json.dumps({"command": command}).encode()
    return client.start("run_shell_command", arguments, **{"fencing_token": LEASE, **envelope})


async def first_answer(world: World, frame: agent_pb2.ToAgent) -> agent_pb2.FromAgent | None:
    """Send a link's first frame and give the answer, None where the agent only closes; either way it must close."""
    reader, writer = await asyncio.open_unix_connection(world.path)
    writer.write(frames.pack(frame.SerializeToString()))
    async with asyncio.timeout(10):
        answer = b"".join(frames.FrameBuffer(frames.MAX_LINK_MESSAGE).feed(await reader.read()))
    writer.close()
    await writer.wait_closed()
    return agent_pb2.FromAgent.FromString(answer) if answer else None


async def test_a_link_with_the_wrong_token_is_closed_without_a_word(world: World) -> None:
    assert await first_answer(world, hello(agent_token=TOKEN[::-1])) is None
    assert await first_answer(world, agent_pb2.ToAgent(ping=agent_pb2.Ping())) is None


async def test_a_link_of_another_protocol_or_sandbox_is_told_so_and_closed(world: World) -> None:
    answer = await first_answer(world, hello(protocol=99))
    assert answer is not None
    assert isinstance(errors.from_detail(answer.error), errors.ProtocolMismatch)
    answer = await first_answer(world, hello(sandbox_id="sb_other"))
    assert answer is not None
    assert isinstance(errors.from_detail(answer.error), errors.SandboxNotFound)


@pytest.mark.parametrize("data", [frames.prefix(1 << 30), frames.prefix(3) + b"\xff\xff\xff"])
async def test_what_is_no_frame_ends_its_link_alone(world: World, client: Client, data: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(world.path)
    writer.write(data)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert (await client.ask(ping=agent_pb2.Ping())).HasField("done")


async def test_a_call_runs_and_its_events_come_in_order(client: Client) -> None:
    ended = await start(client, "write 5").end()
    assert [event.sequence for event in ended.events] == [1, 2, 3]
    assert ended.stdout == bytes(5)


async def test_what_the_user_did_wrong_is_a_result(client: Client) -> None:
    ended = await start(client, "fail there is no such thing").end()
    assert (ended.result.is_error, ended.result.message) == (True, "there is no such thing")
    assert json.loads(ended.blocks[0])["description"] == "stderr"


@pytest.mark.parametrize(
    ("envelope", "raised"),
    [
        ({"fencing_token": LEASE - 1}, errors.LeaseLost),
        ({"fencing_token": LEASE + 1}, errors.LeaseLost),
        ({"fencing_token": 0}, errors.LeaseLost),
        ({"sandbox_id": "sb_other"}, errors.SandboxNotFound),
        ({"call_id": "x" * 129}, errors.InvalidArgument),
        ({"arguments_size": (64 << 20) + 1}, errors.TooLarge),
    ],
)
async def test_a_start_that_may_not_be_is_refused_and_nothing_runs(
    world: World, client: Client, envelope: dict[str, Any], raised: type[Exception]
) -> None:
    with pytest.raises(raised):
        await start(client, "write 1", **envelope).end()
    assert world.ran == []


async def test_an_unknown_tool_and_bad_arguments_are_refused_by_name(world: World, client: Client) -> None:
    with pytest.raises(errors.ToolNotFound) as caught:
        await client.start("no_such_tool", fencing_token=LEASE).end()
    assert caught.value.facts["known"] == "run_shell_command"
    for arguments in (b"{}", b"nonsense", b'{"command": 3}', b'{"command": "true", "more": 1}'):
        with pytest.raises(errors.InvalidArgument):
            await client.start("run_shell_command", arguments, fencing_token=LEASE).end()
    assert world.ran == []


async def test_a_token_only_rises_and_the_older_one_loses_its_say(client: Client) -> None:
    running = start(client, "stay")
    await running.batch()
    with pytest.raises(errors.LeaseLost):
        await client.ask(install_token=agent_pb2.InstallToken(fencing_token=LEASE - 1))
    await client.ask(install_token=agent_pb2.InstallToken(fencing_token=LEASE + 1))
    with pytest.raises(errors.LeaseLost):
        await start(client, "write 1").end()
    with pytest.raises(errors.LeaseLost):
        await client.ask(running.call_id, token=LEASE, cancel=pb.Cancel())
    with pytest.raises(errors.LeaseLost):
        await client.ask(list_tools=agent_pb2.ListTools(fencing_token=LEASE))
    await client.ask(running.call_id, token=LEASE + 1, cancel=pb.Cancel())
    assert (await running.end()).result.reason == pb.END_REASON_CANCELLED


async def test_another_link_needs_the_token_to_touch_a_call(world: World, client: Client) -> None:
    running = start(client, "stay")
    await running.batch()
    async with connect(world.path) as other:
        with pytest.raises(errors.LeaseLost):
            await other.ask(running.call_id, cancel=pb.Cancel())
        await other.ask(running.call_id, token=LEASE, cancel=pb.Cancel())
    assert (await running.end()).result.reason == pb.END_REASON_CANCELLED


async def test_frames_about_a_call_that_was_never_started_are_refused(client: Client) -> None:
    for body in ({"cancel": pb.Cancel()}, {"signal": pb.Signal(number=9)}, {"input": pb.Input(sequence=1)}):
        with pytest.raises(errors.CallNotFound):
            await client.ask("never", token=LEASE, **body)
    with pytest.raises(errors.CallNotFound):
        await client.attach("never", fencing_token=LEASE).end()


async def test_the_same_id_runs_once_and_answers_twice(world: World, client: Client) -> None:
    first = await start(client, "write 9", call_id="twice").end()
    second = await start(client, "write 9", call_id="twice").end()
    assert first.events == second.events
    assert world.ran == ["write 9"]


async def test_a_call_goes_on_without_its_link_and_attach_replays_it(world: World) -> None:
    async with connect(world.path) as client:
        call = start(client, "wait")
        await call.batch()
    world.goes_on.set()
    async with asyncio.timeout(20), connect(world.path) as client:
        await world.finished.wait()
        ended = await client.attach(call.call_id, fencing_token=LEASE).end()
        assert [event.sequence for event in ended.events] == [1, 2, 3]
        rest = await client.attach(call.call_id, after=2, fencing_token=LEASE).end()
        assert [event.sequence for event in rest.events] == [3]
        with pytest.raises(errors.InvalidArgument):
            await client.attach(call.call_id, after=4, fencing_token=LEASE).end()


async def test_events_go_to_the_link_that_attached_last(world: World, client: Client) -> None:
    call = start(client, "wait")
    await call.batch()
    async with connect(world.path) as other:
        attached = other.attach(call.call_id, after=1, fencing_token=LEASE)
        await other.ask(ping=agent_pb2.Ping())
        world.goes_on.set()
        assert (await attached.end()).stdout == b"went on"
    displaced = await call.next()
    batch = pb.CallEventBatch.FromString(displaced.batch)
    assert displaced.final
    assert batch.error.reason == errors_pb2.ERROR_REASON_WRONG_STATE
    assert "another caller attached" in batch.error.message
    await client.ask(ping=agent_pb2.Ping())
    assert call.frames.empty()


async def test_a_detached_call_goes_on_and_its_channel_is_told(world: World, client: Client) -> None:
    call = start(client, "wait")
    await call.batch()
    call.send(detach=pb.Detach())
    assert (await call.next()).HasField("done")
    world.goes_on.set()
    await world.finished.wait()
    assert call.frames.empty()
    assert (await client.attach(call.call_id, fencing_token=LEASE).end()).stdout == b"went on"


async def test_arguments_in_chunks_are_put_together(world: World, client: Client) -> None:
    arguments = json.dumps({"command": "write 1 " + "x" * 100}).encode()
    call = client.start("run_shell_command", arguments[:10], arguments_size=len(arguments), fencing_token=LEASE)
    call.send(argument_chunk=pb.ArgumentChunk(data=arguments[10:60]))
    assert world.ran == []
    call.send(argument_chunk=pb.ArgumentChunk(data=arguments[60:] + b"more"))
    with pytest.raises(errors.InvalidArgument):
        await call.end()
    assert world.ran == []


async def test_a_stalled_reader_holds_its_call_within_its_window_and_delays_no_other(
    world: World, client: Client
) -> None:
    slow = start(client, "write 1000000", window_bytes=64 << 10)
    batch, _ = await slow.batch()
    while (await start(client, "write 1").end()).stdout == b"":
        pass
    call = world.dispatcher.calls.get(slow.call_id)
    assert call.log.used <= 64 << 10
    assert not call.finished
    got, final = sum(len(event.output.data) for event in batch.events), False
    while not final:
        slow.acknowledge(batch.events[-1].sequence)
        batch, final = await slow.batch()
        got += sum(len(event.output.data) for event in batch.events)
        assert call.log.used <= (64 << 10) + 1024
    assert got == 1_000_000


async def test_a_writer_that_nobody_reads_goes_on_after_the_grace(make_world: MakeWorld) -> None:
    world = await make_world(timeouts=Timeouts(reattach=0.05))
    async with asyncio.timeout(20):
        async with connect(world.path) as client:
            call = start(client, "write 1000000", window_bytes=64 << 10)
            await call.batch()
        await world.finished.wait()
        async with connect(world.path) as client:
            ended = await client.attach(call.call_id, fencing_token=LEASE).end()
    dropped = ended.events[0].dropped
    assert (dropped.first_sequence, dropped.last_sequence) == (1, ended.events[0].sequence)
    assert dropped.bytes + len(ended.stdout) == 1_000_000


async def test_a_stopped_call_ends_though_nobody_reads_it(client: Client) -> None:
    call = start(client, "write 1000000", window_bytes=64 << 10)
    await call.batch()
    await client.ask(call.call_id, cancel=pb.Cancel())
    ended = await call.end()
    assert ended.result.reason == pb.END_REASON_CANCELLED
    assert sum(event.dropped.bytes for event in ended.events) > 0


async def test_finished_calls_are_forgotten_by_count_and_never_run_again(make_world: MakeWorld) -> None:
    world = await make_world(retention=Retention(calls=2))
    async with asyncio.timeout(20), connect(world.path) as client:
        for name in ("one", "two", "three"):
            await start(client, "write 1", call_id=name).end()
        for again in (start(client, "write 1", call_id="one"), client.attach("one", fencing_token=LEASE)):
            with pytest.raises(errors.CallExpired):
                await again.end()
        assert (await start(client, "write 1", call_id="three").end()).stdout == bytes(1)
    assert world.ran == ["write 1"] * 3


async def test_finished_calls_are_forgotten_by_bytes_and_by_time(make_world: MakeWorld) -> None:
    world = await make_world(retention=Retention(bytes=50_000))
    hasty = await make_world(retention=Retention(seconds=0))
    async with asyncio.timeout(20), connect(world.path) as client, connect(hasty.path) as other:
        for name in ("one", "two"):
            await start(client, "write 40000", call_id=name).end(acknowledge=False)
        with pytest.raises(errors.CallExpired):
            await client.attach("one", fencing_token=LEASE).end()
        await start(other, "write 1", call_id="one").end()
        with pytest.raises(errors.CallExpired):
            await other.attach("one", fencing_token=LEASE).end()


async def test_a_finished_call_takes_no_signal_and_its_cancel_changes_nothing(client: Client) -> None:
    call = start(client, "write 1")
    await call.end()
    with pytest.raises(errors.CallFinished):
        await client.ask(call.call_id, token=LEASE, signal=pb.Signal(number=15))
    assert (await client.ask(call.call_id, token=LEASE, cancel=pb.Cancel())).HasField("done")


async def test_a_signal_that_there_is_not_is_refused(client: Client) -> None:
    call = start(client, "stay")
    await call.batch()
    with pytest.raises(errors.InvalidArgument):
        await client.ask(call.call_id, token=LEASE, signal=pb.Signal(number=999))
    call.send(cancel=pb.Cancel())
    await call.end()


async def test_tools_are_listed_with_their_schemas(client: Client) -> None:
    answer = await client.ask(list_tools=agent_pb2.ListTools(fencing_token=LEASE))
    (tool,) = pb.ListToolsResponse.FromString(answer.tools).tools
    assert (tool.name, tool.group) == ("run_shell_command", "generic")
    assert json.loads(tool.input_schema_json)["required"] == ["command"]
    answer = await client.ask(list_tools=agent_pb2.ListTools(fencing_token=LEASE, group="filesystem"))
    assert pb.ListToolsResponse.FromString(answer.tools).tools == []
