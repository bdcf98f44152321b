"""Processes with a terminal of their own: size, keys, job control, the end of what was typed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, Output, ProcessAsync, errors
from sandmeshd.mesh import Mesh

CTRL_C, CTRL_D, CTRL_Z = b"\x03", b"\x04", b"\x1a"
# It speaks once the terminal is its own: a shell that is still about to start something takes the keys itself.
JOB = "sh -c 'echo going; exec sleep 1000'\n"


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


async def shown(process: ProcessAsync) -> str:
    """Read a terminal to its end."""
    return b"".join([each.data async for each in process if isinstance(each, Output)]).decode()


async def shell(box: BaseSandboxAsync) -> ProcessAsync:
    """Start a shell that somebody types into."""
    process = await box.processes.start(["bash", "--norc", "-i"], pty=(24, 80), env={"PS1": "ready> "})
    await process.wait_for_log("ready> ")
    return process


async def test_it_is_a_terminal_with_the_size_that_was_asked_for(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("tty; stty size; test -t 0 && test -t 2 && echo $TERM >&2", pty=(30, 100))
    lines = (await shown(process)).split("\r\n")
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:] == ["30 100", "xterm-256color", ""]
    assert (await process.wait()).exit_code == 0


async def test_a_new_size_is_told_to_what_runs_there(box: BaseSandboxAsync) -> None:
    process = await box.processes.start(
        "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done", pty=(24, 80)
    )
    await process.wait_for_log("up")
    await process.resize(50, 132)
    assert "50 132" in await shown(process)


async def test_ctrl_c_interrupts_what_runs_and_the_shell_goes_on(box: BaseSandboxAsync) -> None:
    process = await shell(box)
    await process.write(JOB)
    await process.wait_for_log("^going")
    await process.write(CTRL_C)
    await process.write("echo code=$?; exit 4\n")
    assert "code=130" in await shown(process)
    assert (await process.wait()).exit_code == 4


async def test_jobs_are_stopped_continued_and_ended(box: BaseSandboxAsync) -> None:
    process = await shell(box)
    await process.write(JOB)
    await process.wait_for_log("^going")
    await process.write(CTRL_Z)
    await process.wait_for_log("Stopped")
    await process.write("bg; jobs; kill %1; wait %1; echo code=$?; exit\n")
    text = await shown(process)
    assert "Running" in text
    assert "code=143" in text


async def test_the_end_of_input_is_a_ctrl_d(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("stty -echo; echo up; cat", pty=(24, 80))
    await process.wait_for_log("up")
    await process.write("a line without its end")
    await process.close_stdin()
    assert (await shown(process)).endswith("a line without its end")
    assert (await process.wait()).exit_code == 0


async def test_the_last_words_of_a_terminal_arrive_whole(box: BaseSandboxAsync) -> None:
    process = await box.processes.start("seq 1 30000", pty=(24, 80))
    assert (await shown(process)).split() == [str(number) for number in range(1, 30001)]


async def test_what_runs_on_a_terminal_is_hung_up_with_its_shell(box: BaseSandboxAsync) -> None:
    # The shell itself makes the file: a program that it starts for that could be hung up, too.
    waits = "trap ': > /workspace/hung; exit' HUP; echo up; while :; do sleep 0.05; done"
    process = await box.processes.start(f'set -m; bash -c "{waits}"; true', pty=(24, 80))
    await process.wait_for_log("up")
    await process.kill()
    assert (await process.wait()).signal == 9
    watch = await box.processes.start("until test -e /workspace/hung; do sleep 0.02; done")
    assert (await watch.wait(20)).exit_code == 0


async def test_a_size_needs_a_terminal_and_has_bounds(box: BaseSandboxAsync) -> None:
    plain = await box.processes.start("sleep 1000")
    with pytest.raises(errors.InvalidArgument, match="no terminal"):
        await plain.resize(24, 80)
    attached = await box.processes.attach(plain.id)
    with pytest.raises(errors.InvalidArgument, match="no terminal"):
        await attached.resize(24, 80)
    real = await box.processes.start("sleep 1000", pty=(24, 80))
    for rows, columns in ((0, 80), (24, -1), (24, 20_000)):
        with pytest.raises(errors.InvalidArgument):
            await real.resize(rows, columns)
    await real.kill()
    await real.wait()
    with pytest.raises(errors.CallFinished):
        await real.resize(24, 80)
    with pytest.raises(errors.InvalidArgument, match="rows"):
        await box.processes.start("true", pty=(0, 80))
