"""A backend of AgentScope's tools: programs and files of a sandbox.

It has the methods of `agentscope.tool.BackendBase`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from sandmesh import SandboxAsync
from sandmesh.integrations.programs import run_program, run_script
from sandmesh.integrations.versions import framework

with framework("agentscope"):
    from agentscope.tool import BackendBase, ExecResult

WORKDIR: Final = "/workspace"
TOOLS: Final = f"{WORKDIR}/.agentscope/.venv/bin"
"""Programs of the workspace's own, such as ripgrep: found after the sandbox's."""

_RUN: Final = ("/bin/sh", "-c", f'PATH="$PATH:{TOOLS}" exec "$@"', "sh")
_WRITE: Final = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'
_APPEND: Final = 'cat >> "$1"'


class SandmeshBackend(BackendBase):
    """Runs programs in a sandbox. Failures of the mesh are `SandmeshError`s; those of a program are results."""

    def __init__(self, box: SandboxAsync) -> None:
        self.box = box

    async def getcwd(self) -> str:
        """Return the directory in which programs run that name none."""
        return WORKDIR

    async def exec_shell(
        self, command: list[str], *, cwd: str | None = None, timeout: float | None = None
    ) -> ExecResult:
        """Run a program with its arguments; the exit code is -1 where it exceeded its time and was killed."""
        done = await run_program(self.box, [*_RUN, *command], cwd=cwd or WORKDIR, timeout=timeout)
        result, said = done.result, done.stderr
        if result.reason == "TIMED_OUT":
            return ExecResult(exit_code=-1, stdout=done.stdout, stderr=said or result.message.encode())
        code = result.exit_code if result.signal is None else 128 + result.signal
        if code is None:
            return ExecResult(exit_code=-1, stdout=done.stdout, stderr=said or result.message.encode())
        return ExecResult(exit_code=code, stdout=done.stdout, stderr=said)

    async def read_file(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            OSError: It cannot be read; FileNotFoundError: it does not exist.
        """
        return await run_script(self.box, 'exec cat -- "$1"', self.abspath(path, cwd=WORKDIR))

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file; its directories are made.

        Raises:
            OSError: It cannot be written.
        """
        await run_script(self.box, _WRITE, self.abspath(path, cwd=WORKDIR), data=data)

    async def write_stream(self, path: str, stream: AsyncIterator[bytes]) -> None:
        """Write a file of chunks as they come; its directories are made.

        Raises:
            OSError: It cannot be written.
        """
        await self.write_file(path, b"")
        async for chunk in stream:
            await run_script(self.box, _APPEND, self.abspath(path, cwd=WORKDIR), data=chunk)
