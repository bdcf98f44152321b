"""A person who watches a desktop or a browser by the page of the gateway: real Chromium, told what to do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.environments import environment_of

CHROMIUM = "/usr/lib/chromium/chromium"
PROGRAM = Path(__file__).with_name("viewer_program.py")
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
PICTURE_SECONDS = 60.0
AGENT, PERSON, OTHER = "The agent has", "You have", "Another person has"


class Viewer:
    """A browser on the page."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, command: str, text: str = "") -> Any:
        """Carry a command out and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command} {text}\n".encode())
        return await self._answer(f"{command} {text}")

    async def opened(self) -> None:
        """Wait until the browser runs and has the page, which on a busy machine takes a while."""
        await self._answer("to open the page")

    async def _answer(self, what: str) -> Any:
        assert self._process.stdout is not None
        async with asyncio.timeout(90):
            line = await self._process.stdout.readline()
        assert line, f"{what} failed"
        return json.loads(line)

    async def close(self) -> None:
        """Close the page."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def sees_a_picture(self, width: int, height: int) -> None:
        """Wait until the picture has a size and several colours."""
        until = time.monotonic() + PICTURE_SECONDS
        while (seen := await self.do("colours"))[:2] != [width, height] or seen[2] < 5:
            if time.monotonic() > until:
                connections = await self.do("connections")
                raise AssertionError(f"width, height, colours are {seen} after {connections} connections")


@asynccontextmanager
async def viewing(url: str, **device: Any) -> AsyncGenerator[Viewer]:
    """Open a page in a browser outside of the sandbox, with options of Playwright's context, or `slow_pictures`."""
    python = await asyncio.to_thread(environment_of, "playwright")
    command = (str(python), str(PROGRAM), CHROMIUM, url, json.dumps(device))
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    viewer = Viewer(process)
    try:
        await viewer.opened()
        yield viewer
    finally:
        await viewer.close()
