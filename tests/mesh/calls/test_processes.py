"""Processes through the real mesh: output, input, signals, ends, readiness, letting go and finding again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from sandmesh import BaseSandbox, BaseSandboxAsync, Dropped, Output, ProcessAsync, errors
from sandmeshd.mesh import Mesh

SERVER = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8123)"


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


async def written(process: ProcessAsync, stream: str = "stdout") -> bytes:
    """Read a process to its end."""
    return b"".join([each.data async for each in process if isinstance(each, Output) and each.stream == stream])


async def test_a_process_writes_and_ends_with_its_own_code(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("echo out; echo err >&2; exit 3", cwd="/tmp")
    events = [(each.stream, each.data) async for each in process if isinstance(each, Output)]
    assert sorted(events) == [("stderr", b"err\n"), ("stdout", b"out\n")]
    ended = await process.wait()
    assert (ended.reason, ended.exit_code, ended.signal, ended.is_error) == ("EXITED", 3, None, True)
    assert process.result is ended


async def test_a_program_gets_its_arguments_directory_and_variables_as_they_are(box: BaseSandboxAsync) -> None:
    code = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['A'])"
    process = await box.processes.start(["python3", "-c", code, "a b", "$A"], cwd="/tmp", env={"A": "1 2"})
    assert await written(process) == b"['a b', '$A'] /tmp 1 2\n"


async def test_what_is_written_arrives_and_comes_back(box: BaseSandboxAsync) -> None:
    process = await box.processes.start(["cat"])
    data = bytes(range(256)) * 16384
    writing = asyncio.create_task(process.write(data))
    got = b""
    async for event in process:
        got += event.data if isinstance(event, Output) else b""
        if len(got) == len(data):
            break
    assert got == data
    await writing
    await process.close_stdin()
    await process.close_stdin()
    assert (await process.wait()).exit_code == 0
    with pytest.raises(errors.InvalidArgument, match="is closed"):
        await process.write("more")


async def test_a_process_that_has_ended_takes_no_input_and_no_signal(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("true")
    await process.wait()
    with pytest.raises(errors.CallFinished):
        await process.write("x")
    with pytest.raises(errors.CallFinished):
        await process.send_signal(15)
    await process.kill()
    await process.close_stdin()


async def test_signals_reach_the_process_and_its_end_names_them(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.1; done")
    await process.wait_for_log("ready")
    await process.send_signal(signal.SIGUSR1)
    assert await written(process) == b"ready\ncaught\n"
    assert (await process.wait()).exit_code == 7
    killed = await box.processes.start("sleep 1000")
    await killed.kill()
    ended = await killed.wait()
    assert (ended.reason, ended.exit_code, ended.signal) == ("EXITED", None, 9)
    with pytest.raises(errors.InvalidArgument, match="signal"):
        await (await box.processes.start("sleep 1000")).send_signal(0)


async def test_a_signal_that_nobody_sent_is_told_as_killed(box: BaseSandboxAsync) -> None:
    ended = await (await box.processes.start("kill -SEGV $$")).wait()
    assert (ended.reason, ended.exit_code, ended.signal) == ("KILLED", None, 11)


async def test_a_process_out_of_time_is_killed_and_says_so(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("echo begun; sleep 1000", timeout=0.3)
    ended = await process.wait()
    assert (ended.reason, ended.exit_code) == ("TIMED_OUT", None)


async def test_waiting_has_a_limit_of_its_own_and_the_process_goes_on(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("echo begun; sleep 1000")
    await process.wait_for_log("begun")
    with pytest.raises(errors.DeadlineExceeded, match="begun"):
        await process.wait(0.05)
    assert process.result is None


async def test_an_unread_process_is_waited_for_and_what_went_is_marked(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("head -c 8000000 /dev/zero; echo end")
    assert (await process.wait()).exit_code == 0
    first, *rest = [each async for each in process]
    assert isinstance(first, Dropped)
    kept = b"".join(each.data for each in rest if isinstance(each, Output))
    assert first.bytes + len(kept) == 8_000_004
    assert kept.endswith(b"end\n")


async def test_a_slow_reader_loses_nothing_while_somebody_waits(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("head -c 8000000 /dev/zero; echo end")
    reader = aiter(process)
    first = await anext(reader)
    waiting = asyncio.create_task(process.wait())
    # Long enough for all that fits to have come.
    await (await box.processes.start("true")).wait()
    assert isinstance(first, Output)
    size = len(first.data) + sum([len(each.data) async for each in reader if isinstance(each, Output)])
    assert size == 8_000_004
    assert (await waiting).exit_code == 0


async def test_a_log_line_is_waited_for_and_stays_to_be_read(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("printf 'Listening on '; sleep 0.05; echo port 8123; read -r line")
    match = await process.wait_for_log(r"port (\d+)")
    assert match[1] == "8123"
    assert match.string == "Listening on port 8123"
    await process.write("\n")
    assert await written(process) == b"Listening on port 8123\n"


async def test_waiting_for_a_line_fails_early_with_the_tail(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("echo no such file; exit 2")
    with pytest.raises(errors.WrongState, match=r"exit code 2.*no such file") as caught:
        await process.wait_for_log("ready")
    assert caught.value.facts["state"] == "EXITED"


async def test_a_pattern_that_does_not_compile_is_refused(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("cat")
    with pytest.raises(errors.InvalidArgument, match="does not compile"):
        await process.wait_for_log("(")


async def test_a_port_is_waited_for(box: BaseSandboxAsync) -> None:
    process = await box.processes.start(["python3", "-c", SERVER])
    await process.wait_for_port(8123, "/", timeout=30)
    await process.wait_for_port(8123)
    with pytest.raises(errors.DeadlineExceeded, match="did not answer"):
        await process.wait_for_port(8124, timeout=0.1)
    failing = await box.processes.start("echo bad config; exit 1")
    with pytest.raises(errors.WrongState, match="bad config"):
        await failing.wait_for_port(8124, timeout=30)
    with pytest.raises(errors.InvalidArgument, match="port"):
        await process.wait_for_port(0)


async def test_a_process_that_was_let_go_of_is_found_again(mesh: Mesh, box: BaseSandboxAsync) -> None:
    process = await box.processes.start("echo one; read -r line; echo $line; exit 5")
    await process.wait_for_log("one")
    await process.detach()
    with pytest.raises(errors.WrongState, match="was detached"):
        await process.wait()
    async with BaseSandboxAsync(box.sandbox_id, base_url=mesh.addresses[0]) as other:
        (found,) = await other.processes.list()
        assert (found.process_id, found.running, found.pid) == (process.id, True, process.pid)
        again = await other.processes.attach(found.process_id)
        await again.write("two\n")
        assert await written(again) == b"one\ntwo\n"
        assert (await again.wait()).exit_code == 5
    (found,) = await box.processes.list()
    assert (found.running, found.exit_code, found.reason) == (False, 5, "EXITED")


async def test_input_goes_on_where_another_client_left_it(mesh: Mesh, box: BaseSandboxAsync) -> None:
    process = await box.processes.start(["cat"])
    await process.write("first ")
    await process.wait_for_log("first")
    async with BaseSandboxAsync(box.sandbox_id, base_url=mesh.addresses[0]) as other:
        again = await other.processes.attach(process.id)
        await again.write("second\n")
        await again.close_stdin()
        assert await written(again) == b"first second\n"
        with pytest.raises(errors.WrongState, match="this program"):
            await process.wait()


async def test_what_is_not_there_is_not_found(box: BaseSandboxAsync) -> None:
    with pytest.raises(errors.CallNotFound):
        await box.processes.attach("nothing")


async def test_a_process_whose_output_is_no_longer_kept_is_expired(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("echo over")
    await process.wait()
    # A sandbox keeps a thousand calls that ended: the oldest is forgotten.
    await asyncio.gather(*(box.fs.exists("nothing") for _ in range(1000)))
    with pytest.raises(errors.CallExpired, match="no longer kept"):
        await box.processes.attach(process.id)


async def test_options_that_do_not_fit_are_refused(box: BaseSandboxAsync) -> None:
    wrong: list[tuple[Any, Any]] = [
        ("", {}),
        ([], {}),
        ("x", {"timeout": -1}),
        ("x", {"pty": 5}),
        ("x", {"overflow": "no"}),
    ]
    for command, options in wrong:
        with pytest.raises(errors.InvalidArgument):
            await box.processes.start(command, **options)
    with pytest.raises(TypeError, match="colour"):
        await box.processes.start("true", colour="red")  # type: ignore[call-arg]  # as above
    with pytest.raises(errors.CapabilityMissing, match="root"):
        await box.processes.start("true", user="root")
    assert (await (await box.processes.start("id -u", user="1000")).wait()).exit_code == 0


async def test_a_program_that_cannot_run_is_a_result(box: BaseSandboxAsync) -> None:
    for program, cwd in (("no-such-program", None), ("true", "/no/such/directory")):
        ended = await (await box.processes.start([program], cwd=cwd)).wait()
        assert ended.is_error
        assert ended.exit_code is None
        assert "No such file" in ended.message


async def test_leaving_its_block_ends_a_process(box: BaseSandboxAsync) -> None:
    async with await box.processes.start("sleep 1000") as process:
        pass
    follower = await box.processes.attach(process.id)
    assert (await follower.wait()).reason == "CANCELLED"


async def test_models_are_not_shown_what_handles_are_made_of(box: BaseSandboxAsync) -> None:
    assert list(await box.list_tools()) == ["generic", "git"]
    assert "start_process" in (await box.list_tools("process"))["process"]


async def test_the_sync_handle_does_the_same(mesh: Mesh) -> None:
    def work() -> None:
        with BaseSandbox(base_url=mesh.addresses[0]) as box, box.processes.start(["cat"]) as process:
            process.write("hello\n")
            assert process.wait_for_log("hel+o")[0] == "hello"
            assert [found.process_id for found in box.processes.list()] == [process.id]
            process.close_stdin()
            assert b"".join(each.data for each in process if isinstance(each, Output)) == b"hello\n"
            assert process.wait().exit_code == 0
            assert box.processes.attach(process.id).wait().exit_code == 0

    await asyncio.to_thread(work)
