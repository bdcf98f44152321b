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
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync
from tests.mesh.conftest import run_mesh

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
        try:
            async with asyncio.timeout(40):
                while not re.search(pattern, self.last):
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"no {pattern!r} in:\n{self.last}") from None

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._descriptor, keys.encode())


@asynccontextmanager
async def _top(address: str) -> AsyncGenerator[tuple[DrawnScreen, asyncio.subprocess.Process]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandmeshd.cli.user", "top", "--interval", "0.5"),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "SANDMESH_ADDRESS": address, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
    )  # fmt: skip
    os.close(theirs)
    screen = DrawnScreen(ours)
    try:
        yield screen, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)


async def test_top_shows_a_mesh_and_its_keys_act_on_the_selected_sandbox() -> None:
    hostile = "\x1b]0;taken\x07[red]x"
    async with run_mesh() as mesh, MeshAsync(mesh.addresses[0]) as client:
        address = mesh.addresses[0]
        first = await BaseSandboxAsync(base_url=address, labels={"note": hostile}).start()
        second = await BaseSandboxAsync(base_url=address).start()
        async with _top(address) as (screen, process):
            await screen.shows(first.sandbox_id[:16])
            await screen.shows(r"2 of \d+ sandboxes, 2 in use")
            await screen.shows("nodes: .* bubblewrap 2")
            await screen.shows(rf"{second.sandbox_id} on [\s\S]*leased .*start [\d.]+ s")
            assert all(len(line) <= 80 for line in screen.last.splitlines())
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
            await screen.shows("arrows select")
            screen.press("x")
            await screen.shows("Kill ")
            screen.press("y")
            await screen.shows(r"1 of \d+ sandboxes, 1 in use")
            screen.press("q")
            assert await asyncio.wait_for(process.wait(), 20) == 0
            assert "taken" not in screen.raw
        await second.close()
        await first.close()
