"""Calls where the agent, user code or the zygote has run out of something."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration

from sandmesh.api.call.v1 import call_pb2 as pb

from .client import Client
from .sandbox import Ground, Sandbox, children, talking
from .test_cells import run as run_cell
from .test_cells import start as start_cell
from .test_shell import run, start

pytestmark = pytest.mark.needs("user namespaces")

FILL = """
import os, socket
ends = socket.socketpair()
for _ in range(4):
    socket.send_fds(ends[0], [b"x"], [0] * 250)
"""
"""Puts 1,000 descriptors on their way in a socket."""


@contextmanager
def descriptors_limited(ground: Ground, pid: int, limit: int) -> Generator[None]:
    """Lower a sandbox process's soft limit of descriptors, for a while."""
    before, _ = resource_limit(pid)
    limit_descriptors(ground, pid, limit)
    try:
        yield
    finally:
        limit_descriptors(ground, pid, before)


def resource_limit(pid: int) -> tuple[int, int]:
    """Return a process's soft and hard limit of descriptors."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    soft, hard = next(line.split()[3:5] for line in lines if line.startswith("Max open files"))
    return int(soft), int(hard)


def limit_descriptors(ground: Ground, pid: int, limit: int) -> None:
    """Set a sandbox process's soft limit of descriptors, as the sandbox's user: others may not."""
    user = ground.settings.host_uid if os.geteuid() == 0 else None
    group = ground.settings.host_gid if os.geteuid() == 0 else None
    command = ["prlimit", f"--pid={pid}", f"--nofile={limit}:"]
    subprocess.run(command, check=True, user=user, group=group, cwd="/")


def lowest_free(pid: int) -> int:
    """Return the lowest descriptor that a process does not have open."""
    taken = {int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    return min(set(range(len(taken) + 1)) - taken)


async def first_free(pid: int) -> int:
    """Return the same once it has been the same for a while."""
    seen: list[int] = []
    async with asyncio.timeout(20):
        # An agent closes what a call has left, and imports ahead, after it has answered.
        while len(seen) < 10 or len(set(seen[-10:])) > 1:
            seen.append(lowest_free(pid))
            await asyncio.sleep(0.03)
    return seen[-1]


def zygote_pid(sandbox: Sandbox) -> int:
    """Return the pid of user code's first process on the host."""
    return children(sandbox.agent_pid)[0]


@contextmanager
def zygote_stopped(sandbox: Sandbox) -> Generator[None]:
    """Stop user code's first process for a while, so that it handles no request."""
    zygote = zygote_pid(sandbox)
    os.kill(zygote, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(zygote, signal.SIGCONT)


async def test_a_request_that_cannot_be_sent_fails_with_the_reason(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run_cell(client, FILL)
        with descriptors_limited(ground, sandbox.agent_pid, 500):
            result = (await run(client, "echo reached")).result
        assert result.is_error
        assert "ETOOMANYREFS" in result.message
        assert (await run(client, "echo reached")).stdout == b"reached\n"


async def test_a_request_that_can_be_sent_again_in_time_is_not_lost(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run_cell(client, FILL)
        with descriptors_limited(ground, sandbox.agent_pid, 500):
            waiting = start(client, "echo reached")
            # The kernel runs, and needs no request to the zygote.
            await run_cell(client, "ends[0].close(); ends[1].close()")
            assert (await waiting.end()).stdout == b"reached\n"


async def test_an_interrupt_is_answered_once_its_signal_was_sent(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        other = client.start("create_kernel", b'{"kernel_id": "other"}')
        assert not (await other.end()).result.is_error
        cell = start_cell(client, "import os\nos.write(1, b'begun')\ninput()", takes_input=True)
        await cell.until(b"begun")
        with zygote_stopped(sandbox):
            interrupt = asyncio.create_task(
                client.start("interrupt_kernel", b'{"kernel_id": "default"}').end(), name="interrupt"
            )
            # A cell of a kernel that runs needs no request to the zygote.
            await client.start("run_cell", b'{"kernel_id": "other", "code": "1"}').end()
            assert not interrupt.done()
        assert not (await interrupt).result.is_error
        cell.send(input=pb.Input(sequence=1, data=b"\n"))
        ended = await cell.end()
        assert "KeyboardInterrupt" in ended.result.message


async def test_requests_that_wait_keep_their_order(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run_cell(client, FILL)
        with descriptors_limited(ground, sandbox.agent_pid, 500):
            waiting = [start(client, f"echo {number}") for number in range(20)]
            await run_cell(client, "ends[0].close(); ends[1].close()")
            ended = await asyncio.gather(*(each.end() for each in waiting))
        assert [each.stdout for each in ended] == [f"{number}\n".encode() for number in range(20)]
        pids = [each.events[0].started.pid for each in ended]
        assert pids == sorted(pids)


async def test_an_agent_without_free_descriptors_fails_calls_with_the_reason(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run(client, "true")
        free = await first_free(sandbox.agent_pid)
        # What has some of its descriptors and lacks the next one must close those, so each count is tried.
        for extra in range(4):
            with descriptors_limited(ground, sandbox.agent_pid, free + extra):
                for result in ((await run(client, "echo")).result, (await run(client, "x" * 70_000)).result):
                    assert result.is_error
                    assert "EMFILE" in result.message, (extra, result)
        assert await first_free(sandbox.agent_pid) == free
        assert (await run(client, "echo reached")).stdout == b"reached\n"


async def test_a_kernel_that_cannot_be_started_for_want_of_descriptors_starts_later(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run_cell(client, "1+1")
        # Below all that is open: what the old kernel leaves free is no descriptor for a new one.
        with descriptors_limited(ground, sandbox.agent_pid, 3):
            await run_cell(client, "import os; os._exit(0)")
            assert "EMFILE" in (await run_cell(client, "1+1")).result.message
        assert not (await run_cell(client, "1+1")).result.is_error


async def test_a_zygote_without_free_descriptors_refuses_calls_and_goes_on(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        # It imports no more once a kernel runs.
        await run_cell(client, "1+1")
        await run(client, "true")
        zygote = zygote_pid(sandbox)
        free = await first_free(zygote)
        for extra in range(5):
            with descriptors_limited(ground, zygote, free + extra):
                for command in ("echo", f"echo {'x' * 70_000}"):
                    result = (await run(client, command)).result
                    if extra < 4:
                        assert "EMFILE" in result.message, (extra, result)
        assert await first_free(zygote) == free
        assert (await run(client, "echo reached")).stdout == b"reached\n"


async def test_a_tools_timeout_counts_while_its_request_cannot_be_sent(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run_cell(client, FILL)
        with descriptors_limited(ground, sandbox.agent_pid, 500):
            result = (await run(client, "echo", timeout=0.1)).result
        assert result.reason == pb.END_REASON_TIMED_OUT


async def test_a_tools_timeout_counts_while_the_zygote_answers_nothing(sandbox: Sandbox, client: Client) -> None:
    with zygote_stopped(sandbox):
        result = (await run(client, "echo", timeout=0.1)).result
    assert result.reason == pb.END_REASON_TIMED_OUT


async def test_a_cells_timeout_counts_while_its_kernel_starts(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run_cell(client, "1+1")
        command = shlex.join(["python3", "-c", f"{FILL}print('full', flush=True)\nimport time; time.sleep(600)"])
        filler = start(client, command)
        await filler.until(b"full")
        with descriptors_limited(ground, sandbox.agent_pid, 500):
            await run_cell(client, "import os; os._exit(0)")
            ended = await run_cell(client, "1+1", timeout=0.1)
            assert ended.result.reason == pb.END_REASON_TIMED_OUT
        assert not (await run_cell(client, "1+1")).result.is_error


async def test_a_call_that_creates_a_kernel_times_out_while_the_zygote_answers_nothing(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run_cell(client, "1+1")
        with zygote_stopped(sandbox):
            creation = client.start("create_kernel", b"{}", timeout=Duration(nanos=100_000_000))
            assert (await creation.end()).result.reason == pb.END_REASON_TIMED_OUT
        assert not (await client.start("create_kernel", b"{}").end()).result.is_error


async def test_a_cells_timeout_counts_while_it_waits_for_another_cell(client: Client) -> None:
    slow = start_cell(client, "import time; time.sleep(60)")
    ended = await run_cell(client, "1+1", timeout=0.1)
    assert ended.result.reason == pb.END_REASON_TIMED_OUT
    assert "before it ran" in ended.result.message
    slow.send(cancel=pb.Cancel())
    await slow.end()


WITHOUT_MEMORY = """
import asyncio, errno, socket, sys
import pyseccomp
from sandmeshd.agent.calls.scarcity import scarcity
from sandmeshd.agent.processes.requests import RequestQueue

async def main():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    queue, failed = RequestQueue(ours), asyncio.get_running_loop().create_future()
    # The kernel answers as it does when it has no memory for a message.
    denied = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    denied.add_rule(pyseccomp.ERRNO(getattr(errno, sys.argv[1])), "sendmsg")
    denied.load()
    started = asyncio.get_running_loop().time()
    queue.send(1, {"op": "echo"}, [], failed.set_result)
    number = await asyncio.wait_for(failed, 20)
    print(errno.errorcode[number], round(asyncio.get_running_loop().time() - started), scarcity(number))

asyncio.run(main())
"""


async def test_a_request_that_the_kernel_has_no_memory_for_is_repeated_and_then_fails_with_the_reason() -> None:
    async def attempt(name: str) -> str:
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.create_subprocess_exec(sys.executable, "-c", WITHOUT_MEMORY, name, stdout=pipe)
        return (await program.communicate())[0].decode()

    for name, line in zip(
        ("ENOBUFS", "ENOMEM"), await asyncio.gather(attempt("ENOBUFS"), attempt("ENOMEM")), strict=True
    ):
        found, seconds, reason = line.split(" ", 2)
        assert (found, int(seconds) >= 2) == (name, True)
        assert reason.startswith(f"the machine has no free memory ({name})")
