"""Shell commands in a real sandbox."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallFinished, InvalidArgument

from .client import Channel, Client, Ended
from .sandbox import Ground, peak, resident, talking

pytestmark = pytest.mark.needs("user namespaces")


def start(client: Client, command: str, arguments: dict[str, Any] | None = None, **envelope: Any) -> Channel:
    """Start a command."""
    encoded = json.dumps({"command": command, **(arguments or {})}).encode()
    return client.start("run_shell_command", encoded, **envelope)


async def run(client: Client, command: str, **arguments: Any) -> Ended:
    """Run a command to its end."""
    return await start(client, command, arguments).end()


async def test_output_and_exit_code_are_the_commands_own(client: Client) -> None:
    ended = await run(client, "echo out; echo err >&2; exit 3")
    assert (ended.stdout, ended.stderr) == (b"out\n", b"err\n")
    assert (ended.result.exit_code, ended.result.is_error) == (3, True)
    assert ended.events[0].started.pid > 0


async def test_writing_to_stderr_alone_is_no_error(client: Client) -> None:
    result = (await run(client, "echo err >&2")).result
    assert (result.exit_code, result.is_error, result.message) == (0, False, "")


async def test_bytes_that_are_no_text_arrive_as_they_are(client: Client) -> None:
    assert (await run(client, r"printf '\xff\x00\xfe'")).stdout == b"\xff\x00\xfe"


async def test_directory_and_variables_are_the_callers(client: Client) -> None:
    await run(client, "mkdir -p below")
    ended = await run(client, 'pwd; echo "$GREETING $HOME"', cwd="below", env={"GREETING": "hi"})
    assert ended.stdout == b"/workspace/below\nhi /home/sandbox\n"


async def test_a_missing_directory_is_an_error_of_the_tool(client: Client) -> None:
    result = (await run(client, "pwd", cwd="nowhere")).result
    assert result.is_error
    assert not result.HasField("exit_code")
    assert "cannot be entered" in result.message


async def test_a_variable_that_cannot_be_is_an_error_of_the_tool(client: Client) -> None:
    assert "nor names an '='" in (await run(client, "true", env={"A=B": "c"})).result.message


async def test_a_command_that_is_too_long_says_what_to_do(client: Client) -> None:
    result = (await run(client, "true " + "x" * 200_000)).result
    assert result.is_error
    assert "write it to a file" in result.message


async def test_a_command_over_its_time_is_killed_with_its_group(client: Client) -> None:
    ended = await run(client, "sleep 77 & echo $! ; wait", timeout=2)
    assert (ended.result.reason, ended.result.signal) == (pb.END_REASON_TIMED_OUT, 9)
    child = int(ended.stdout)
    # Killed it is; to be gone takes a moment.
    gone = await run(client, f"while grep -qsv ' Z ' /proc/{child}/stat; do sleep 0.01; done", timeout=20)
    assert gone.result.exit_code == 0


async def test_a_cancelled_command_still_gives_its_result(client: Client) -> None:
    call = start(client, "echo runs; sleep 60")
    await call.until(b"runs")
    call.send(cancel=pb.Cancel())
    assert (await call.end()).result.reason == pb.END_REASON_CANCELLED


async def test_a_signal_that_nobody_sent_is_killed_and_one_that_was_sent_is_not(client: Client) -> None:
    result = (await run(client, "kill -TERM $$")).result
    assert (result.reason, result.signal) == (pb.END_REASON_KILLED, 15)
    assert not result.HasField("exit_code")
    call = start(client, "echo runs; sleep 60")
    await call.until(b"runs")
    call.send(signal=pb.Signal(number=15))
    result = (await call.end()).result
    assert (result.reason, result.signal, result.is_error) == (pb.END_REASON_EXITED, 15, True)


async def test_a_background_child_that_keeps_stdout_open_does_not_hold_the_call(client: Client) -> None:
    ended = await run(client, "(sleep 600; echo late) & echo $!")
    child = int(ended.stdout)
    assert (await run(client, f"test -d /proc/{child}")).result.exit_code == 0
    await run(client, f"kill -9 {child}")


async def test_a_background_writer_goes_on_after_its_call(client: Client) -> None:
    command = "(for i in $(seq 3000); do echo 0123456789012345678901234567890123456789; done; echo > finished) & :"
    await run(client, command)
    waited = await run(client, "while ! test -e finished; do sleep 0.01; done", timeout=20)
    assert waited.result.exit_code == 0


async def test_without_takes_input_standard_input_is_empty(client: Client) -> None:
    assert (await run(client, "cat; echo end")).stdout == b"end\n"


async def test_input_arrives_in_order_once_and_is_acknowledged(client: Client) -> None:
    call = start(client, "cat", takes_input=True)
    call.send(input=pb.Input(sequence=1, data=b"one "))
    call.send(input=pb.Input(sequence=1, data=b"one "))
    answer = await client.ask(call.call_id, input=pb.Input(sequence=2, data=b"two"))
    assert answer.done.input_ack_sequence == 2
    with pytest.raises(InvalidArgument):
        await client.ask(call.call_id, input=pb.Input(sequence=9, data=b"gap"))
    call.send(input=pb.Input(sequence=3, end=True))
    acknowledged, stdout, final = 0, b"", False
    while not final:
        batch, final = await call.batch()
        acknowledged = max(acknowledged, batch.input_ack_sequence)
        stdout += b"".join(event.output.data for event in batch.events)
    assert (stdout, acknowledged) == (b"one two", 3)
    with pytest.raises(CallFinished):
        await client.ask(call.call_id, input=pb.Input(sequence=4, data=b"late"))


async def test_who_attaches_is_told_how_much_of_the_input_was_taken(client: Client) -> None:
    call = start(client, "cat >/dev/null", takes_input=True)
    call.send(input=pb.Input(sequence=1, data=b"one"))
    taken = last = 0
    while not (taken and last):
        seen, _ = await call.batch()
        taken = max(taken, seen.input_ack_sequence)
        last = max([last, *(event.sequence for event in seen.events)])
    attached = client.attach(call.call_id, after=last)
    async with asyncio.timeout(20):
        while not (await attached.batch())[0].input_ack_sequence:
            pass
    attached.send(input=pb.Input(sequence=2, end=True))
    assert (await attached.end()).result.exit_code == 0


async def test_input_larger_than_a_pipe_passes(client: Client) -> None:
    call = start(client, "wc -c", takes_input=True)
    for number in range(1, 6):
        call.send(input=pb.Input(sequence=number, data=bytes(1 << 20), end=number == 5))
    assert int((await call.end()).stdout) == 5 << 20


async def test_a_hundred_megabytes_pass_with_flat_memory_and_an_output_limit_cuts_them(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run(client, "true")
        before = resident(sandbox.agent_pid)
        call = start(client, "head -c 100000000 /dev/zero")
        total, final = 0, False
        while not final:
            batch, final = await call.batch()
            total += sum(len(event.output.data) for event in batch.events)
            call.acknowledge(batch.events[-1].sequence)
        assert total == 100_000_000
        assert peak(sandbox.agent_pid) - before < 16 << 10
        ended = await start(client, "head -c 5000000 /dev/zero", output_limit_bytes=70_000).end()
        assert len(ended.stdout) == 70_000
        assert [e.dropped.bytes for e in ended.events if e.HasField("dropped")] == [4_930_000]
        assert ended.result.exit_code == 0


async def test_a_caller_that_does_not_read_holds_its_own_command_and_nothing_else(client: Client) -> None:
    slow = start(client, "head -c 3000000 /dev/zero; echo done", window_bytes=64 << 10)
    got = last = 0
    while got < 50_000:
        batch, final = await slow.batch()
        got += sum(len(event.output.data) for event in batch.events)
        last = batch.events[-1].sequence
        assert not final
    assert (await run(client, "echo other")).stdout == b"other\n"
    assert slow.frames.empty()
    slow.acknowledge(last)
    ended = await slow.end()
    assert got + len(ended.stdout) == 3_000_005


async def test_a_dropping_call_runs_on_and_says_what_is_missing(client: Client) -> None:
    call = start(
        client, "head -c 3000000 /dev/zero; echo > ran_on", window_bytes=64 << 10, overflow=pb.OVERFLOW_DROP_OLDEST
    )
    assert (await run(client, "while ! test -e ran_on; do sleep 0.01; done", timeout=20)).result.exit_code == 0
    ended = await call.end()
    sequences = [event.sequence for event in ended.events]
    dropped = sum(event.dropped.bytes for event in ended.events)
    assert sequences == sorted(sequences)
    assert dropped > 0
    assert len(ended.stdout) + dropped == 3_000_000
    assert ended.result.exit_code == 0


async def test_a_file_larger_than_the_limit_is_not_written(ground: Ground) -> None:
    async with talking(ground, max_file_bytes=100_000) as (sandbox, client):
        result = (await run(client, "head -c 200000 /dev/zero > big")).result
        assert result.is_error
        assert (sandbox.workspace / "big").stat().st_size == 100_000


async def test_file_tools_write_no_larger_files_than_user_code_may(ground: Ground) -> None:
    async with talking(ground, max_file_bytes=100_000) as (sandbox, client):
        encoded = json.dumps({"path": "big", "content": "x" * 200_000}).encode()
        result = (await client.start("write_file", encoded).end()).result
        assert result.is_error
        assert "larger than files may be" in result.message
        assert not (sandbox.workspace / "big").exists()
        assert not (await run(client, "echo goes on")).result.is_error


async def test_where_git_is_absent_the_answer_says_so(ground: Ground) -> None:
    async with (
        asyncio.timeout(60),
        talking(ground, environment={**ground.variables, "PATH": "/nowhere"}) as (_, client),
    ):
        result = (await client.start("commit_changes", b'{"message": "m"}').end()).result
        assert result.is_error
        assert "has no git that runs" in result.message
        assert (await run(client, "exit 3")).result.exit_code == 3
