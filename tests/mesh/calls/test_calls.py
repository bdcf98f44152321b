"""Every way of carrying a call, by plain gRPC through the real gateway to a real agent."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass

import grpc
import pytest
import pytest_asyncio

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.call.v1 import call_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.errors import CallNotFound, InvalidArgument, LeaseLost, SandboxLost, SandboxNotFound, TooLarge, WrongState
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.channels import open_channel
from sandmeshd.mesh import Mesh
from tests.mesh.sandboxes.test_metrics import scrape

Answer = pb.RunCallResponse | pb.OpenCallResponse | pb.AttachCallResponse


@dataclass(frozen=True)
class Box:
    """A sandbox and the stub to reach it."""

    calls: call_pb2_grpc.CallServiceAsyncStub
    channel: grpc.aio.Channel
    sandbox: sandbox_pb2.Sandbox

    def start(self, command: str, call_id: str = "", **fields: object) -> pb.CallStart:
        arguments = json.dumps({"command": command}).encode()
        envelope = {"tool": "run_shell_command", "arguments": arguments, **fields}
        return pb.CallStart(sandbox_id=self.sandbox.sandbox_id, call_id=call_id, **envelope)  # type: ignore[arg-type]  # by name

    def run(self, start: pb.CallStart) -> AsyncIterable[pb.RunCallResponse]:
        return self.calls.RunCall(pb.RunCallRequest(start=start))

    def attach(self, call_id: str, after: int = 0) -> AsyncIterable[pb.AttachCallResponse]:
        place = pb.Attach(sandbox_id=self.sandbox.sandbox_id, call_id=call_id, after_sequence=after)
        return self.calls.AttachCall(pb.AttachCallRequest(attach=place))

    async def send_line(self, call_id: str) -> None:
        line = pb.Input(sequence=1, data=b"\n")
        request = pb.SendInputRequest(sandbox_id=self.sandbox.sandbox_id, call_id=call_id, input=line)
        await self.calls.SendInput(request)


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[Box]:
    async with open_channel(mesh.addresses[0]) as channel, asyncio.timeout(60):
        yield await connect(channel)


async def connect(channel: grpc.aio.Channel) -> Box:
    """Make a sandbox."""
    slot = session_pb2.SlotSpec(spec=sandbox_pb2.SandboxSpec(template="base"))
    request = session_pb2.ConnectSessionRequest(user_id="u", session_id=secrets.token_hex(8), slots=[slot])
    connected = await session_pb2_grpc.SessionServiceStub(channel).ConnectSession(request)
    return Box(call_pb2_grpc.CallServiceStub(channel), channel, connected.session.sandboxes["base"])


async def events(answers: AsyncIterable[Answer]) -> list[pb.CallEvent]:
    """Collect a call's events to its end."""
    return [event async for answer in answers for event in answer.batch.events]


def output(found: list[pb.CallEvent]) -> bytes:
    """Join what was written."""
    return b"".join(event.output.data for event in found)


async def first_output(answers: AsyncIterable[Answer]) -> pb.CallEvent:
    """Wait until something was written."""
    async for answer in answers:
        for event in answer.batch.events:
            if event.HasField("output"):
                return event
    raise AssertionError("nothing was written")


async def test_events_are_numbered_without_gaps_and_end_with_one_result(box: Box) -> None:
    found = await events(box.run(box.start("for i in 1 2 3; do echo $i; done; exit 4")))
    assert [event.sequence for event in found] == list(range(1, len(found) + 1))
    assert [event.HasField("result") for event in found] == [False] * (len(found) - 1) + [True]
    assert (found[-1].result.exit_code, found[-1].result.is_error) == (4, True)


async def test_a_call_goes_on_without_its_caller_and_another_gets_the_rest(box: Box, mesh: Mesh) -> None:
    [page] = await mesh.http.open()
    start = box.start("echo one; read -r line; echo two", "c1", takes_input=True)
    stream = box.calls.RunCall(pb.RunCallRequest(start=start))
    seen = await first_output(stream)
    stream.cancel()
    while (await scrape(page))["sandmesh_open_rpcs{method=sandmesh.api.call.v1.CallService/RunCall}"]:
        pass
    await box.send_line("c1")
    rest = await events(box.attach("c1", seen.sequence))
    assert output([seen, *rest]) == b"one\ntwo\n"
    assert rest[0].sequence == seen.sequence + 1
    assert rest[-1].result.exit_code == 0


async def test_the_same_call_id_runs_once_and_answers_twice(box: Box) -> None:
    start = box.start("echo run >> count; wc -l < count", "once")
    first = await events(box.run(start))
    second = await events(box.run(start))
    assert output(first).strip() == b"1"
    assert second[-1] == first[-1]
    assert output(await events(box.run(box.start("wc -l < count")))).strip() == b"1"


async def test_of_two_callers_at_once_the_later_follows_and_the_earlier_is_told(box: Box) -> None:
    early = box.run(box.start("echo up; read -r line; echo on", "shared", takes_input=True))
    await first_output(early)
    later = asyncio.create_task(events(box.attach("shared")))
    with pytest.raises(WrongState, match="another caller attached"), translated():
        await events(early)
    await box.send_line("shared")
    # What the first had acknowledged by then is not kept for the second.
    assert output(await later).endswith(b"on\n")


async def test_a_cancelled_call_still_gives_its_result(box: Box) -> None:
    stream = box.run(box.start("echo up; sleep 60", "long"))
    await first_output(stream)
    await box.calls.CancelCall(pb.CancelCallRequest(sandbox_id=box.sandbox.sandbox_id, call_id="long"))
    rest = await events(stream)
    assert rest[-1].result.reason == pb.END_REASON_CANCELLED
    assert not rest[-1].result.HasField("exit_code")


async def test_input_comes_by_stream_and_by_unary_requests(box: Box) -> None:
    async def frames() -> AsyncGenerator[pb.OpenCallRequest]:
        start = box.start("cat", "cat", takes_input=True)
        yield pb.OpenCallRequest(frame=pb.CallFrame(call_id="cat", start=start))
        data = pb.Input(sequence=1, data=b"by stream\n")
        yield pb.OpenCallRequest(frame=pb.CallFrame(call_id="cat", input=data))
        await ended.wait()

    ended = asyncio.Event()
    stream = box.calls.OpenCall(frames())
    found = [await first_output(stream)]
    end = pb.Input(sequence=2, data=b"unary\n", end=True)
    request = pb.SendInputRequest(sandbox_id=box.sandbox.sandbox_id, call_id="cat", input=end)
    assert (await box.calls.SendInput(request)).input_ack_sequence == 2
    found += await events(stream)
    ended.set()
    assert output(found) == b"by stream\nunary\n"
    assert found[-1].result.exit_code == 0


async def test_input_that_is_sent_faster_than_it_is_read_waits_and_arrives_whole(box: Box) -> None:
    parts, part = 40, bytes(1 << 20)

    async def frames() -> AsyncGenerator[pb.OpenCallRequest]:
        start = box.start("until [ -e go ]; do sleep 0.02; done; wc -c", "slow", takes_input=True)
        yield pb.OpenCallRequest(frame=pb.CallFrame(call_id="slow", start=start))
        for number in range(1, parts + 1):
            item = pb.Input(sequence=number, data=part, end=number == parts)
            yield pb.OpenCallRequest(frame=pb.CallFrame(call_id="slow", input=item))
            sent.append(number)

    sent: list[int] = []
    counting = asyncio.create_task(events(box.calls.OpenCall(frames())))
    await events(box.run(box.start("sleep 0.5")))  # in which all of it would have been sent
    assert len(sent) < parts
    await events(box.run(box.start("touch go")))
    assert output(await counting).strip() == b"%d" % (parts << 20)


async def test_an_input_that_is_too_large_is_refused_and_the_call_goes_on_for_who_attaches(box: Box) -> None:
    start = box.start("echo up; wc -c", "counts", takes_input=True)
    stream = box.calls.OpenCall()
    await stream.write(pb.OpenCallRequest(frame=pb.CallFrame(call_id="counts", start=start)))
    await first_output(stream)
    item = pb.Input(sequence=1, data=bytes((1 << 20) + 1), end=True)
    await stream.write(pb.OpenCallRequest(frame=pb.CallFrame(call_id="counts", input=item)))
    with pytest.raises(TooLarge, match="1 MiB"), translated():
        await events(stream)
    end = pb.Input(sequence=1, data=b"four", end=True)
    await box.calls.SendInput(pb.SendInputRequest(sandbox_id=box.sandbox.sandbox_id, call_id="counts", input=end))
    assert output(await events(box.attach("counts"))).split()[-1] == b"4"


async def test_a_signal_reaches_the_process(box: Box) -> None:
    command = "trap 'echo caught; exit 5' USR1; echo up; while :; do sleep 0.05; done"
    running = asyncio.create_task(events(box.run(box.start(command, "trap"))))
    async with asyncio.timeout(20):
        while not running.done():
            request = pb.SignalCallRequest(sandbox_id=box.sandbox.sandbox_id, call_id="trap")
            request.signal.number = signal.SIGUSR1
            try:
                await box.calls.SignalCall(request)
            except grpc.aio.AioRpcError:
                await asyncio.wait([running], timeout=0.05)
            else:
                break
    found = await running
    # A signal that came before the trap was set ends the shell by itself.
    assert (output(found).endswith(b"caught\n") and found[-1].result.exit_code == 5) or found[-1].result.signal == 10


async def test_another_token_than_the_leases_is_refused(box: Box) -> None:
    for token in (box.sandbox.lease.fencing_token - 1, 1):
        with pytest.raises(LeaseLost), translated():
            await events(box.run(box.start("echo no", fencing_token=token)))


async def test_bad_calls_are_refused_by_name(box: Box) -> None:
    with pytest.raises(CallNotFound), translated():
        await events(box.attach("never"))
    await events(box.run(box.start("true", "short")))
    with pytest.raises(InvalidArgument), translated():
        await events(box.attach("short", after=99))
    elsewhere = box.start("true")
    elsewhere.sandbox_id = "sb_nowhere"
    with pytest.raises(SandboxNotFound), translated():
        await events(box.run(elsewhere))
    large = box.start("true", arguments_size=65 << 20)
    with pytest.raises(TooLarge), translated():
        await events(box.run(large))


async def test_a_call_whose_sandbox_is_killed_ends_with_the_reason(box: Box, mesh: Mesh) -> None:
    stream = box.run(box.start("echo up; sleep 60", "doomed"))
    await first_output(stream)
    following = asyncio.create_task(events(stream))
    stub = sandbox_pb2_grpc.SandboxServiceStub(box.channel)
    request = sandbox_pb2.ReleaseSandboxRequest(sandbox_id=box.sandbox.sandbox_id)
    request.fencing_token = box.sandbox.lease.fencing_token
    await stub.ReleaseSandbox(request)
    with pytest.raises((SandboxLost, SandboxNotFound)), translated():
        await following
