"""Calls over connections that are cut and stalled every 100 ms: nothing is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, Output, ProcessAsync
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmeshd.auth.channels import open_channel
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.processes import files_below
from tests.proxies import FaultProxy, Faults, broken, broken_socket

MIB = 1 << 20
# The short form; `make faults` gives 1024.
MEBIBYTES = int(os.environ.get("SANDMESH_TEST_STREAM_MIB", "8"))

PRINTS = """
import hashlib, random, sys
made, seen = random.Random(7), hashlib.sha256()
for _ in range({count}):
    data = made.randbytes(1 << 20)
    seen.update(data)
    sys.stdout.buffer.write(data)
sys.stdout.flush()
sys.stderr.write(seen.hexdigest())
sys.exit(42)
"""

TAKES = """
import hashlib, sys
seen, size = hashlib.sha256(), 0
while data := sys.stdin.buffer.read1(1 << 16):
    seen.update(data)
    size += len(data)
print(size, seen.hexdigest())
"""


@asynccontextmanager
async def through(faults: Faults | None) -> AsyncGenerator[tuple[str, FaultProxy]]:
    """Run a mesh behind a proxy, which breaks what goes through it where it is told how."""
    async with run_mesh(listen=("127.0.0.1:0",)) as mesh:
        (address,) = [each for each in mesh.addresses if not each.startswith("unix:")]
        async with broken(address, faults) as (before, proxy):
            yield before, proxy


async def digest(process: ProcessAsync) -> tuple[int, str, str]:
    """Read a process to its end: how many bytes came, their checksum, and what it says of them itself."""
    seen, size, error = hashlib.sha256(), 0, b""
    async for event in process:
        assert isinstance(event, Output)
        if event.stream == "stderr":
            error += event.data
        else:
            seen.update(event.data)
            size += len(event.data)
    return size, seen.hexdigest(), error.decode()


@pytest.mark.timeout(60 + 4 * MEBIBYTES)
async def test_an_output_arrives_whole_over_connections_that_are_cut_and_stalled() -> None:
    faults = Faults()
    async with through(faults) as (address, proxy), BaseSandboxAsync(base_url=address) as box:
        faults.go.set()
        process = await box.processes.start(["python3", "-c", PRINTS.format(count=MEBIBYTES)])
        size, seen, expected = await digest(process)
        ended = await process.wait()
        proxy.heal()
    assert (size, seen) == (MEBIBYTES * MIB, expected)
    assert (ended.reason, ended.exit_code) == ("EXITED", 42)
    assert faults.cuts > 0
    assert faults.stalls > 0


@pytest.mark.timeout(60 + 4 * MEBIBYTES)
async def test_input_arrives_whole_over_connections_that_are_cut_and_stalled() -> None:
    faults, data = Faults(seed=2), os.urandom(MEBIBYTES * MIB // 2)
    async with through(faults) as (address, proxy), BaseSandboxAsync(base_url=address) as box:
        faults.go.set()
        process = await box.processes.start(["python3", "-c", TAKES])
        await process.write(data)
        await process.close_stdin()
        output = b"".join([event.data async for event in process if isinstance(event, Output)])
        assert (await process.wait()).exit_code == 0
        proxy.heal()
    assert output.decode().split() == [str(len(data)), hashlib.sha256(data).hexdigest()]
    assert faults.cuts + faults.stalls > 0


def made_up() -> AsyncIterator[bytes]:
    """Return the bytes of a file, the same each time."""
    return pieces_of(random.Random(7))  # noqa: S311 - the same file again, not a secret


async def pieces_of(dice: random.Random) -> AsyncIterator[bytes]:
    for _ in range(MEBIBYTES):
        yield dice.randbytes(MIB)


async def digest_of(chunks: AsyncIterator[bytes]) -> str:
    """Read to the end: how many bytes came, and their checksum."""
    seen, size = hashlib.sha256(), 0
    async for chunk in chunks:
        seen.update(chunk)
        size += len(chunk)
    return f"{size} {seen.hexdigest()}"


@pytest.mark.timeout(60 + 8 * MEBIBYTES)
async def test_files_arrive_whole_both_ways_over_connections_that_are_cut_and_stalled() -> None:
    faults, expected = Faults(seed=4), await digest_of(made_up())
    patience = 60.0 + 8 * MEBIBYTES
    async with through(faults) as (address, proxy), BaseSandboxAsync(base_url=address, timeout=patience) as box:
        faults.go.set()
        await box.fs.write("big", made_up())
        broken_up, faults.cuts, faults.stalls = faults.cuts * faults.stalls, 0, 0
        async with await box.fs.read("big", "stream") as stream:
            assert await digest_of(stream) == expected
        proxy.heal()
        inside = await box.run_shell_command("stat -c %s big; sha256sum < big; ls -A")
    assert inside.stdout.split() == [*expected.split(), "-", "big"]
    assert broken_up > 0
    assert faults.cuts * faults.stalls > 0


async def test_an_output_arrives_whole_when_the_links_to_the_agent_break() -> None:
    faults = Faults(seed=3)
    async with run_mesh(pools={"base": 1}, max_sandboxes=1) as mesh:
        # One that waits in the pool: the gateway opens its link when a session gets it.
        path = await pooled_agent(mesh)
        aside = path.with_name("aside.sock")
        path.rename(aside)
        try:
            async with (
                broken_socket(str(path), str(aside), faults),
                BaseSandboxAsync(base_url=mesh.addresses[0]) as box,
            ):
                faults.go.set()
                process = await box.processes.start(["python3", "-c", PRINTS.format(count=12)])
                size, seen, expected = await digest(process)
                assert (await process.wait()).exit_code == 42
        finally:
            path.unlink(missing_ok=True)
            # The sandbox is being deleted by now.
            with suppress(FileNotFoundError):
                aside.rename(path)
    assert (size, seen) == (12 * MIB, expected)
    assert faults.cuts + faults.stalls > 0


async def test_a_connection_that_is_open_but_dead_is_noticed_and_replaced() -> None:
    async with through(None) as (address, proxy), BaseSandboxAsync(base_url=address) as box:
        async with asyncio.timeout(60):
            process = await box.processes.start("read -r line; echo $line; exit 6")
            proxy.die()
            await process.write("through\n")
            assert await process.wait_for_log("through")
            assert (await process.wait()).exit_code == 6


WATCHES = """
import asyncio, sys
from sandmesh import BaseSandboxAsync

async def main(address, sandbox_id):
    async with BaseSandboxAsync(sandbox_id, base_url=address) as box:
        lines = "for i in $(seq {} {}); do echo $i; done"
        process = await box.processes.start(f"{lines.format(1, 100)}; read -r go; {lines.format(101, 200)}; exit 9")
        async for event in process:
            print(process.id, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_client_is_killed_in_mid_call_and_another_gets_the_rest_and_the_result(mesh: Mesh) -> None:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WATCHES, mesh.addresses[0], box.sandbox_id, stdout=asyncio.subprocess.PIPE
        )
        assert client.stdout is not None
        process_id = (await client.stdout.readline()).decode().strip()
        client.send_signal(signal.SIGKILL)
        await client.communicate()
        process = await box.processes.attach(process_id)
        await process.write("go\n")
        lines = b"".join([event.data async for event in process if isinstance(event, Output)]).decode().split()
        assert lines == [str(number) for number in range(int(lines[0]), 201)]
        assert (await process.wait()).exit_code == 9


async def pooled_agent(mesh: Mesh) -> Path:
    """Wait for a mesh's only sandbox, and find the socket of its agent, which its node and its gateway know."""
    async with open_channel(mesh.addresses[0]) as channel:
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        while not (await stub.GetCapacity(sandbox_pb2.GetCapacityRequest())).pooled.get("base"):
            pass
    runtime = Path(mesh.addresses[0].removeprefix("unix://")).parents[1]
    (found,) = files_below(runtime, "agent.sock")
    return found
