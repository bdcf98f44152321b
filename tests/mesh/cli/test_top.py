"""`sandmesh top` on a real terminal of 80 columns: what it shows, and what its keys do."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]")


class DrawnScreen:
    """A terminal with a program in it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.raw = ""
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            self.raw += os.read(self._descriptor, 65536).decode(errors="replace")
        except OSError:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._more.set()

    @property
    def last(self) -> str:
        """The text of what was drawn last."""
        return _ESCAPES.sub("", self.raw.rpartition("\x1b[H")[2] or self.raw)

    async def shows(self, pattern: str) -> None:
        """Wait until something is shown."""
        await self.draws(lambda lines: re.search(pattern, "\n".join(lines)) is not None, pattern)

    async def draws(self, wanted: Callable[[list[str]], bool], name: str = "such lines") -> None:
        """Wait until what was drawn last is as wanted."""
        try:
            async with asyncio.timeout(40):
                while not wanted(self.last.splitlines() or [""]):
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"no {name} in:\n{self.last}") from None

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._descriptor, keys.encode())


@dataclass(frozen=True)
class RunningTop:
    """`sandmesh top` in a terminal that is its controlling one, as a shell starts it."""

    screen: DrawnScreen
    process: asyncio.subprocess.Process
    terminal: int

    def resize(self, rows: int, columns: int) -> None:
        """Change the terminal's size: the kernel sends SIGWINCH."""
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@asynccontextmanager
async def _top(address: str, interval: str = "0.5") -> AsyncGenerator[RunningTop]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = await asyncio.create_subprocess_exec(
        *("setsid", "--ctty", sys.executable, "-m", "sandmeshd.cli.user", "top", "--interval", interval),
        stdin=theirs, stdout=theirs, stderr=theirs, env={**variables, "SANDMESH_ADDRESS": address, "TERM": "xterm"},
    )  # fmt: skip
    screen = DrawnScreen(ours)
    try:
        yield RunningTop(screen, process, theirs)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
        os.close(theirs)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of these tests."""
    async with run_mesh() as running:
        yield running


async def test_top_shows_a_mesh_and_its_keys_act_on_the_selected_sandbox(mesh: Mesh) -> None:
    hostile = "\x1b]0;taken\x07[red]x"
    address = mesh.addresses[0]
    async with MeshAsync(address) as client, BaseSandboxAsync(base_url=address, labels={"note": hostile}) as first:
        second = await BaseSandboxAsync(base_url=address).start()
        async with _top(address) as top:
            screen = top.screen
            await screen.shows(first.sandbox_id[:16])
            await screen.shows(r"2 of \d+ sandboxes, 2 in use")
            await screen.shows("nodes: .* bubblewrap 2")
            await screen.shows(rf"{second.sandbox_id} on [\s\S]*leased .*start [\d.]+ s")
            assert all(len(line) <= 80 for line in screen.last.splitlines())
            await screen.shows("a allow  u use  c calls  q quit")
            screen.press("\x1b[B")
            await screen.shows(f"{first.sandbox_id} on ")
            screen.press("u")
            await screen.shows(r"uses [\d.]+ processors, \d+ MiB, \d+ processes")
            screen.press("p")
            await screen.shows("paused ")
            assert (await client.sandboxes.get(first.sandbox_id)).state == "PAUSED"
            screen.press("p")
            await screen.shows("resumed ")
            screen.press("s")
            await screen.shows(r"\$ |# ")
            screen.press("echo $((6*7)) is shown\n")
            await screen.shows("42 is shown")
            screen.press("exit 3\n")
            await screen.shows("The shell ended with exit code 3")
            screen.press("x")
            await screen.shows(f"Kill {first.sandbox_id}")
            screen.press("n")
            await screen.shows("arrows move")
            assert (await client.sandboxes.get(first.sandbox_id)).state == "READY"
            screen.press("k")
            await screen.shows(f"{second.sandbox_id} on ")
            screen.press("x")
            await screen.shows(f"Kill {second.sandbox_id}")
            screen.press("y")
            await screen.shows(r"1 of \d+ sandboxes, 1 in use")
            screen.press("q")
            assert await asyncio.wait_for(top.process.wait(), 20) == 0
            assert "taken" not in screen.raw
        await second.close()


async def test_sandboxes_are_ordered_by_use_and_one_sandboxs_calls_are_listed(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with BaseSandboxAsync(base_url=address) as busy, BaseSandboxAsync(base_url=address) as idle:
        await busy.processes.start("while :; do :; done")
        await idle.run_shell_command("exit 3")
        async with _top(address) as top:
            screen = top.screen
            await screen.shows(rf"{idle.sandbox_id[:16]}[\s\S]*{busy.sandbox_id[:16]}")
            screen.press("oooo")
            # The busy one comes first, though it is the older one.
            first, second = (rf"{one.sandbox_id[:16]}[^\n]* [\d.]+ +\d+ MiB" for one in (busy, idle))
            await screen.shows(rf"most used first[\s\S]*{first}[\s\S]*{second}")
            assert all(len(line) <= 80 for line in screen.last.splitlines())
            screen.press("J")
            await screen.shows(f"{idle.sandbox_id} on ")
            screen.press("c")
            await screen.shows(r"its newest calls[\s\S]*run_shell_command +[\d.]+ s +error")
            assert all(len(line) <= 80 for line in screen.last.splitlines())
            screen.press("c")
            await screen.shows(rf"{idle.sandbox_id} on [\s\S]*leased ")
            screen.press("o")
            await screen.shows("newest first")
            assert " MiB" not in screen.last


async def test_a_key_allows_a_host_that_the_sandbox_was_refused(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with BaseSandboxAsync(base_url=address, network=["example.org"]) as box, _top(address) as top:
        screen = top.screen
        await screen.shows(f"{box.sandbox_id} on ")
        screen.press("a")
        await screen.shows("was refused no host")
        await box.run_shell_command("curl -s http://first.test/; curl -s http://second.test:8080/")
        await screen.shows(r"egress_refused  first\.test:80[\s\S]*egress_refused  second\.test:8080")
        screen.press("a")
        await screen.shows(r"Allow second\.test:8080\? .*, a is the next")
        screen.press("a")
        await screen.shows(r"Allow first\.test\? y allows it from now on\s*$")
        assert (await box.network.show()).grant.hosts == ("example.org",)
        screen.press("y")
        await screen.shows(r"first\.test is allowed")
        assert (await box.network.show()).grant.hosts == ("example.org", "first.test")
        # What is allowed already is not offered again.
        screen.press("a")
        await screen.shows(r"Allow second\.test:8080\? y allows it from now on\s*$")


async def test_it_is_drawn_for_the_new_size_of_its_terminal(mesh: Mesh) -> None:
    # It does not look at the mesh again in this test: what draws is the change of size.
    async with _top(mesh.addresses[0], interval="3600") as top:
        await top.screen.shows("q quit")
        top.resize(12, 44)
        await top.screen.draws(lambda lines: max(map(len, lines)) == 44 and len(lines) <= 12)
        top.resize(24, 80)
        await top.screen.draws(lambda lines: max(map(len, lines)) == 80)


async def test_an_interrupt_leaves_the_terminal_as_it_was(mesh: Mesh) -> None:
    async with _top(mesh.addresses[0]) as top:
        before = termios.tcgetattr(top.terminal)
        await top.screen.shows("q quit")
        assert termios.tcgetattr(top.terminal) != before
        top.screen.press("\x03")
        assert await asyncio.wait_for(top.process.wait(), 20) == 130
        assert termios.tcgetattr(top.terminal) == before
        assert "Traceback" not in top.screen.raw
