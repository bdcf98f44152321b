"""Calls over one stream: their events, acknowledgements, credit, cancellation and what a broken stream costs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from sandmesh import BaseSandboxAsync, Dropped, Output, Progress, Result, Started
from sandmesh import errors as e
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.session.v1 import session_pb2
from sandmesh.tools import RunIpythonCell

from .conftest import World
from .stand_in import Served, StandIn

MIB = 1024 * 1024


def only_call(mesh: StandIn) -> Served:
    (call,) = mesh.calls.values()
    return call


async def call_of(mesh: StandIn) -> Served:
    await mesh.news.until(lambda: mesh.calls)
    return only_call(mesh)


async def test_the_first_two_cells_give_what_they_should(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        printed = await box.run_ipython_cell("print('Hello, World!')")
        assert printed["content"][0]["text"] == "Hello, World!\n"
        assert (await box.run_ipython_cell(code="1+1")).text == "2"
        assert (await box.call(RunIpythonCell(code="1+1"))).text == "2"
        assert (await box.call_tool("run_ipython_cell", {"code": "1+1"})).text == "2"


async def test_a_call_carries_its_envelope(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address, timeout=12.5) as box:
        await box.run_ipython_cell("x", timeout=2)
        start = only_call(world.mesh).start
        assert (start.sandbox_id, start.tool, start.fencing_token) == (box.sandbox_id, "run_ipython_cell", 7)
    assert start.arguments == b'{"code": "x", "timeout": 2.0}'
    assert start.timeout.ToNanoseconds() == 12.5e9
    assert start.output_limit_bytes == 64 * MIB


async def test_one_call_may_have_more_time_than_the_box(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address, timeout=5) as box:
        await box.run_ipython_cell("x", timeout=60)
    assert only_call(world.mesh).start.timeout.seconds == 60


async def test_many_calls_at_once_share_one_stream_and_few_messages(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        answers = await asyncio.gather(*(box.run_ipython_cell(f"cell {n}") for n in range(300)))
        assert [answer.text for answer in answers] == [f'{{"code": "cell {n}"}}' for n in range(300)]
    assert world.mesh.streams == 1
    assert world.mesh.messages < 60


async def test_a_call_after_a_call_is_one_message_and_frees_the_last_ones_log(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        for _ in range(5):
            await box.run_ipython_cell("1+1")
        assert world.mesh.messages == 5
        first, *_, last = world.mesh.calls.values()
        assert first.log == []
        assert len(last.log) == 3
        await last.news.until(lambda: last.acknowledged == 3)


async def test_closing_a_box_acknowledges_what_came(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        await box.run_ipython_cell("1+1")
    call = only_call(world.mesh)
    await call.news.until(lambda: call.acknowledged == 3)


async def test_a_refused_call_is_the_same_exception_with_its_facts(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        with pytest.raises(e.ToolNotFound) as caught:
            await box.call_tool("nothing")
        assert caught.value.facts == {"known": "run_ipython_cell"}
        assert (await box.run_ipython_cell("1+1")).text == "2"
    assert world.mesh.streams == 1


async def test_an_output_larger_than_the_window_comes_whole(world: World) -> None:
    async def much(call: Served) -> None:
        for number in range(128):
            await call.write(bytes([number]) * 65536)
        await call.end()

    world.mesh.tools["much"] = much
    async with BaseSandboxAsync(base_url=world.address) as box:
        result = await box.call_tool("much")
    assert result.stdout_bytes == b"".join(bytes([number]) * 65536 for number in range(128))


async def test_a_stream_gives_each_event_as_it_is(world: World) -> None:
    async def all_kinds(call: Served) -> None:
        euro = "€".encode()
        await call.send(started=pb.Started(pid=7))
        await call.send(progress=pb.Progress(progress=1, total=2, message="half"))
        await call.write(euro[:1])
        await call.write(euro[1:])
        await call.write(b"!", pb.STREAM_STDERR)
        await call.send(dropped=pb.Dropped(bytes=5))
        await call.end(exit_code=0)

    world.mesh.tools["all"] = all_kinds
    async with BaseSandboxAsync(base_url=world.address) as box:
        events = [event async for event in box.stream("all", any=1)]
    euro = "€".encode()
    assert events == [
        Started(7),
        Progress(1.0, 2.0, "half"),
        Output("stdout", euro[:1], ""),
        Output("stdout", euro[1:], "€"),
        Output("stderr", b"!", "!"),
        Dropped(5),
        Result("EXITED", is_error=False, exit_code=0, signal=None, message="", structured=None),
    ]


async def test_a_stream_that_is_not_read_holds_back_its_call_and_no_other(world: World) -> None:
    async def endless(call: Served) -> None:
        while not call.cancelled.is_set():
            await call.write(bytes(65536))
        await call.end(reason=pb.END_REASON_CANCELLED)

    world.mesh.tools["endless"] = endless
    async with BaseSandboxAsync(base_url=world.address) as box, aclosing(box.stream("endless")) as events:
        await anext(events)
        call = only_call(world.mesh)
        await world.mesh.news.until(lambda: call.sent >= 16)
        assert (await box.run_ipython_cell("1+1")).text == "2"
        held = call.sent
        for _ in range(40):
            assert (await box.run_ipython_cell("1+1")).text == "2"
        assert call.sent == held
        for _ in range(20):
            await anext(events)
        await call.news.until(lambda: call.acknowledged >= 16)


async def hang(call: Served) -> None:
    """Say that it runs, and end only when it is cancelled."""
    await call.send(started=pb.Started(pid=7))
    await call.cancelled.wait()
    await call.end(reason=pb.END_REASON_CANCELLED)


async def test_a_cancelled_task_cancels_its_call(world: World) -> None:
    world.mesh.tools["hang"] = hang
    async with BaseSandboxAsync(base_url=world.address) as box:
        task = asyncio.create_task(box.call_tool("hang"))
        call = await call_of(world.mesh)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await call.cancelled.wait()
        await call.news.until(lambda: call.acknowledged == 2)


async def test_leaving_a_stream_early_cancels_its_call(world: World) -> None:
    world.mesh.tools["hang"] = hang
    async with BaseSandboxAsync(base_url=world.address) as box:
        async for _ in box.stream("hang"):
            break
        await only_call(world.mesh).cancelled.wait()


async def test_a_mesh_that_falls_silent_is_given_up_on_with_a_cancel(world: World) -> None:
    world.mesh.tools["hang"] = hang
    async with BaseSandboxAsync(base_url=world.address, timeout=2) as box:
        with pytest.raises(e.DeadlineExceeded) as caught:
            await box.call_tool("hang")
        assert caught.value.changed
        await only_call(world.mesh).cancelled.wait()
        with pytest.raises(e.DeadlineExceeded):
            async for _ in box.stream("hang"):
                pass


@pytest.mark.parametrize("size", [64 * 1024 + 1, MIB, 2 * MIB + 7])
async def test_large_arguments_arrive_whole(world: World, size: int) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        await box.run_ipython_cell("x" * size)
    call = only_call(world.mesh)
    assert call.arguments == b'{"code": "' + b"x" * size + b'"}'
    assert len(call.start.arguments) <= MIB
    assert call.start.arguments_size == (len(call.arguments) if size > MIB - 20 else 0)


async def test_arguments_that_no_sandbox_takes_are_refused_before_anything_is_sent(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        with pytest.raises(e.TooLarge) as caught:
            await box.run_ipython_cell("x" * (64 * MIB))
        assert caught.value.facts["limit"] == str(64 * MIB)
    assert world.mesh.calls == {}


@pytest.mark.parametrize("arguments", [{"a": {1, 2}}, {"a": float("nan")}, [1]])
async def test_arguments_that_json_has_no_form_for_are_refused(world: World, arguments: dict[str, object]) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        with pytest.raises(e.InvalidArgument):
            await box.call_tool("run_ipython_cell", arguments)


async def test_a_bad_value_is_refused_before_anything_is_sent(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        with pytest.raises(e.InvalidArgument, match="command"):
            await box.run_shell_command("")
    assert world.mesh.calls == {}


async def test_calls_and_streams_go_on_after_the_mesh_restarted_and_lose_no_event() -> None:
    mesh, go_on = StandIn(), asyncio.Event()

    async def in_two_parts(call: Served) -> None:
        await call.write(b"before,")
        await go_on.wait()
        await call.write(b"after")
        await call.end(exit_code=0)

    mesh.tools["run_shell_command"] = in_two_parts
    async with asyncio.timeout(20):
        async with mesh.serve() as address:
            box = await BaseSandboxAsync(base_url=address).start()
            whole = asyncio.create_task(box.run_shell_command("a"))
            events = box.stream("run_shell_command", command="b")
            got = [await anext(events)]
            await mesh.news.until(lambda: [call.sent for call in mesh.calls.values()] == [1, 1])
        async with mesh.serve(address):
            go_on.set()
            assert (await whole).stdout == "before,after"
            got += [event async for event in events]
            await box.close()
    assert b"".join(event.data for event in got if isinstance(event, Output)) == b"before,after"
    assert mesh.streams == 2
    assert mesh.requests_of(session_pb2.ReleaseSessionRequest)


async def test_a_call_that_was_made_while_the_mesh_was_away_runs_once() -> None:
    mesh = StandIn()

    async def answer(call: Served) -> None:
        await call.end()

    mesh.tools["t"] = answer
    async with asyncio.timeout(20):
        async with mesh.serve() as address:
            box = await BaseSandboxAsync(base_url=address).start()
            await box.call_tool("t")
        waiting = asyncio.create_task(box.call_tool("t", {"x": "y" * 3 * MIB}))
        await asyncio.sleep(0)
        async with mesh.serve(address):
            assert not (await waiting).is_error
            await box.close()
    assert len(mesh.calls) == 2
    assert all(call.starts == 1 for call in mesh.calls.values())
