"""Programs that the driver runs to their end: pip, the probe, a warm-up.

Not by asyncio's own subprocesses: under uvloop they fork, which must not happen beside gRPC's threads.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sandmeshd.runtime.processes.child_process import readable, wait

TAIL_LINES = 30
READ_BYTES = 1 << 16


class RunningCommand:
    """A program that runs: its output by lines, and the last of them."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._last: deque[str] = deque(maxlen=TAIL_LINES)

    async def lines(self) -> AsyncIterator[str]:
        """Yield each line of its output."""
        rest = b""
        while part := await self._read():
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield self._noted(line)
        if rest:
            yield self._noted(rest)

    async def _read(self) -> bytes:
        if self._process.stdout is None:
            return b""
        output = self._process.stdout.fileno()
        await readable(output)
        return os.read(output, READ_BYTES)

    def _noted(self, line: bytes) -> str:
        self._last.append(line.decode("utf-8", "replace").rstrip())
        return self._last[-1]

    async def succeeded(self) -> bool:
        """Wait for its end and return whether it succeeded."""
        async for _ in self.lines():
            pass
        await self.ended()
        return self._process.returncode == 0

    async def ended(self) -> None:
        """Return when it ended."""
        await wait(self._process)

    async def kill(self) -> None:
        """End it and all in its process group, where it runs."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self.ended()

    @property
    def detail(self) -> str:
        """Its last words."""
        return "\n".join(self._last) or f"exit code {self._process.returncode}, no output"


@asynccontextmanager
async def running(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> AsyncGenerator[RunningCommand]:
    """Run a program in a new session; when the block ends while it runs, its process group is ended."""
    with _started(arguments, cwd, env, pass_fds) as process:
        command = RunningCommand(process)
        try:
            yield command
        finally:
            await command.kill()


def _started(
    arguments: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None, pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        umask=0o022,
        cwd=cwd,
        env=env,
        pass_fds=pass_fds,
    )
