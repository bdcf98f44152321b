"""Runs a program of user code for a tool that reads its output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import RunningCall
from sandmeshd.agent.processes.spawner import ProcessEnd, ProcessGroup, ProcessSpawner

MOST_OUTPUT: Final = 32 << 20
_CHUNK: Final = 256 << 10


@dataclass(frozen=True)
class ProgramCommand:
    """A program, its directory and its whole environment."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Captured:
    """A program's output, and how it ended."""

    ended: ProcessEnd
    stdout: bytes
    stderr: bytes


@dataclass
class _PipeReader:
    """One pipe's bytes so far."""

    reader: int
    pieces: list[bytes] = field(default_factory=list[bytes])
    size: int = 0

    def read(self) -> bool:
        """Read what is there; return False where there is no more, now or at all."""
        try:
            data = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return False
        self.size += len(data)
        if self.size <= MOST_OUTPUT:
            self.pieces.append(data)
        return bool(data)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


async def capture(processes: ProcessSpawner, command: ProgramCommand, call: RunningCall | None) -> Captured:
    """Run a program to its end without input, or until a call is stopped or this is cancelled.

    Background processes that it leaves get a broken pipe.

    Raises:
        ToolFailure: It wrote more than 32 MiB, or no process could be started.
    """
    with ExitStack() as stack:
        null = _closed_after(stack, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        pipes = [_closed_after(stack, *os.pipe2(os.O_CLOEXEC)) for _ in range(2)]
        readers = [_PipeReader(reader) for reader, _ in pipes]
        ends = [*null, *(writer for _, writer in pipes)]
        process = processes.spawn(command.argv, ends, cwd=command.cwd, env=command.env)
        with call.stopping(process.stop, process.signal) if call else nullcontext(), _killed_after(process):
            await process.started
            ended = await _read(readers, process.ended, process.kill)
    if max(reader.size for reader in readers) > MOST_OUTPUT:
        raise ToolFailure(
            f"The result is larger than {MOST_OUTPUT >> 20} MiB. Request less, or use run_shell_command and a file."
        )
    return Captured(ended, *(reader.data for reader in readers))


@contextmanager
def _killed_after(process: ProcessGroup) -> Generator[None]:
    try:
        yield
    finally:
        if not process.ended.done():
            process.kill()


def _closed_after(stack: ExitStack, *fds: int) -> tuple[int, ...]:
    for fd in fds:
        stack.callback(os.close, fd)
    return fds


async def _read(
    readers: Sequence[_PipeReader], ended: asyncio.Future[ProcessEnd], kill: Callable[[], None]
) -> ProcessEnd:
    loop = asyncio.get_running_loop()

    def follow(reader: _PipeReader) -> None:
        if not reader.read():
            loop.remove_reader(reader.reader)
        elif reader.size > MOST_OUTPUT:
            kill()

    for reader in readers:
        os.set_blocking(reader.reader, False)
        loop.add_reader(reader.reader, follow, reader)
    try:
        return await asyncio.shield(ended)
    finally:
        for reader in readers:
            loop.remove_reader(reader.reader)
            while reader.size <= MOST_OUTPUT and reader.read():
                pass
