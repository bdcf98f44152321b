"""Programs that the driver runs to their end: pip, the probe, a warm-up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

TAIL_LINES = 30


@dataclass
class Command:
    """A program that runs: its output by lines, and the last of them."""

    process: asyncio.subprocess.Process
    last: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    async def lines(self) -> AsyncIterator[str]:
        """Give each line of its output; longer ones than 64 KiB in parts."""
        stream = self.process.stdout
        while stream is not None and (line := await stream.readline()):
            self.last.append(line.decode("utf-8", "replace").rstrip())
            yield self.last[-1]

    async def succeeded(self) -> bool:
        """Say at its end whether it ended well."""
        async for _ in self.lines():
            pass
        return await self.process.wait() == 0

    @property
    def detail(self) -> str:
        """Its last words."""
        return "\n".join(self.last) or f"exit code {self.process.returncode}, no output"


@asynccontextmanager
async def running(arguments: Sequence[str], **told: Any) -> AsyncGenerator[Command]:
    """Run a program in a session of its own; when the block ends it and all it started in its group are ended."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        umask=0o022,
        **told,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
