"""`sandmesh shell` and `sandmesh exec -it`: a person's terminal, here a pseudo-terminal, carried to a sandbox."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from sandmesh import BaseSandboxAsync
from sandmeshd.mesh import Mesh
from tests.mesh.calls.test_terminals import CTRL_C, CTRL_D

# Makes its standard input the terminal of its session, as a person's terminal is.
SITS_AT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
COMMAND = (sys.executable, "-m", "sandmeshd.cli.user")


class Screen:
    """The other side of a terminal: what is shown there, and keys."""

    def __init__(self, master: int, slave: int, before: list[Any], process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.slave = slave
        self.before = before
        self._master = master
        self._shown = ""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        self._shown += os.read(self._master, 65536).decode()
        self._news.set()

    async def until(self, wanted: str) -> None:
        """Wait until something is shown, and forget what was shown until then."""
        async with asyncio.timeout(30):
            while wanted not in self._shown:
                self._news.clear()
                await self._news.wait()
        self._shown = self._shown.partition(wanted)[2]

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@asynccontextmanager
async def sitting_at(*arguments: str) -> AsyncGenerator[Screen]:
    """Run the command at a terminal of 33 rows and 111 columns."""
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    before = termios.tcgetattr(slave)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SITS_AT, *COMMAND, *arguments),
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    try:
        yield Screen(master, slave, before, process)
    finally:
        asyncio.get_running_loop().remove_reader(master)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)
        os.close(slave)


async def test_a_shell_is_a_real_terminal_that_is_left_as_it_was(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        arguments = ("shell", box.sandbox_id, "--base-url", mesh.addresses[0])
        async with sitting_at(*arguments) as screen:
            await screen.until("$ ")
            screen.type(b"stty size\r")
            await screen.until("33 111")
            screen.resize(40, 100)
            screen.type(b"until [ \"$(stty size)\" = '40 100' ]; do sleep 0.05; done; echo resi''zed\r")
            await screen.until("resized")
            # It speaks once the terminal is its own: a shell that is still about to start something takes the keys.
            screen.type(b"sh -c \"echo go''ing; exec sleep 1000\"\r")
            await screen.until("going")
            screen.type(CTRL_C)
            await screen.until("$ ")
            screen.type(b"exit 7\r")
            assert await asyncio.wait_for(screen.process.wait(), 20) == 7
            assert termios.tcgetattr(screen.slave) == screen.before


async def test_exec_it_runs_a_program_at_the_terminal(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with BaseSandboxAsync(base_url=address) as box:
        arguments = ("exec", "-it", "--base-url", address, box.sandbox_id, "--", "python3", "-q")
        async with sitting_at(*arguments) as screen:
            await screen.until(">>> ")
            screen.type(b"print(6 * 7)\r")
            await screen.until("\n42")
            # A terminal that is not read from keeps this key as an empty letter for the next who reads.
            await screen.until(">>> ")
            screen.type(CTRL_D)
            assert await asyncio.wait_for(screen.process.wait(), 20) == 0


async def test_without_a_terminal_standard_input_is_the_script(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with BaseSandboxAsync(base_url=address) as box:

        async def run(*arguments: str) -> tuple[int | None, bytes, bytes]:
            process = await asyncio.create_subprocess_exec(
                *COMMAND, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            out, err = await asyncio.wait_for(process.communicate(b"echo out; echo err >&2; exit 3\n"), 40)
            return process.returncode, out, err

        assert await run("shell", box.sandbox_id, "--base-url", address) == (3, b"out\n", b"err\n")
        assert await run("exec", "-i", "--base-url", address, box.sandbox_id, "--", "sh") == (3, b"out\n", b"err\n")
        code, _, err = await run("exec", "-it", "--base-url", address, box.sandbox_id, "--", "sh")
        assert code == 2
        assert b"needs a terminal" in err
