"""A person who watches a desktop or a browser by the page of the gateway: real Chromium, told what to do."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.environments import environment_of

CHROMIUM = "/usr/lib/chromium/chromium"
PROGRAM = Path(__file__).with_name("viewer_program.py")
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
AGENT, PERSON, OTHER = "The agent has", "You have", "Another person has"


class Viewer:
    """A browser on the page."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, command: str, text: str = "") -> Any:
        """Carry a command out and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command} {text}\n".encode())
        async with asyncio.timeout(90):
            line = await self._process.stdout.readline()
        assert line, f"{command} {text} failed"
        return json.loads(line)

    async def close(self) -> None:
        """Close the page."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def sees_a_picture(self, width: int, height: int) -> None:
        """Wait until the picture has a size and several colours."""
        seen: Any = None
        try:
            async with asyncio.timeout(60):
                while (seen := await self.do("colours"))[:2] != [width, height] or seen[2] < 5:
                    pass
        except TimeoutError:
            raise AssertionError(f"the picture has width, height, colours {seen}") from None


@asynccontextmanager
async def viewing(url: str, **device: Any) -> AsyncGenerator[Viewer]:
    """Open a page in a browser outside of the sandbox, with options of Playwright's context."""
    python = await asyncio.to_thread(environment_of, "playwright")
    command = (str(python), str(PROGRAM), CHROMIUM, url, json.dumps(device))
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    viewer = Viewer(process)
    try:
        yield viewer
    finally:
        await viewer.close()
