"""OpenSSH's clients while the only gateway ends and starts again."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from tests.faults.world import World, open_world
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.timeout(300), pytest.mark.needs("ssh")]

LINES = 300
SIZE = 64 << 20


async def client(world: World, folder: Path, program: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start one of OpenSSH's clients, its input and output in pipes."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SANDMESH_")}
    environment = {**variables, "SANDMESH_ADDRESS": world.addresses()}
    command = [sys.executable, "-m", "sandmeshd.cli.user", "ssh-config"]
    made = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    config, _ = await made.communicate()
    (folder / "config").write_bytes(config)
    return await asyncio.create_subprocess_exec(
        program,
        "-F",
        str(folder / "config"),
        "-o",
        "BatchMode=yes",
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_session_of_ssh_goes_on_when_the_only_gateway_starts_again(tmp_path: Path, end: int) -> None:
    async with open_world(tmp_path, count=1) as world, BaseSandboxAsync(base_url=world.addresses()) as box:
        command = f"for i in $(seq {LINES}); do echo line $i; sleep 0.02; done; read word; echo $word >&2; exit 5"
        following = await client(world, tmp_path, "ssh", f"{box.sandbox_id}.sandmesh", command)
        assert following.stdout is not None
        first = await following.stdout.readline()
        for _ in range(2):
            await world.programs["gateway1"].kill(end)
            await world.programs["gateway1"].start()
        out, err = await following.communicate(b"typed\n")
        assert (first + out).decode() == "".join(f"line {number}\n" for number in range(1, LINES + 1))
        assert (following.returncode, err.decode()) == (5, "typed\n")


async def test_a_transfer_of_sftp_goes_on_when_the_only_gateway_starts_again(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(os.urandom(SIZE))
    async with open_world(tmp_path, count=1) as world, BaseSandboxAsync(base_url=world.addresses()) as box:
        # The directory says that the session has begun: a client that finds no gateway at its start says so, and ends.
        batch = f"mkdir begun\nput {tmp_path}/content up\nget up {tmp_path}/back\n"
        transfer = await client(world, tmp_path, "sftp", "-q", "-b", "-", f"{box.sandbox_id}.sandmesh")
        moving = asyncio.create_task(transfer.communicate(batch.encode()))
        await until(lambda: box.fs.exists("begun"), 60)
        restarts = 0
        while not moving.done() and restarts < 3:
            await world.programs["gateway1"].kill(signal.SIGTERM)
            await world.programs["gateway1"].start()
            restarts += 1
            await asyncio.wait([moving], timeout=1)
        _, err = await moving
        assert transfer.returncode == 0, err.decode()
        digests = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("content", "back")]
        assert digests[0] == digests[1]
        assert restarts > 0
