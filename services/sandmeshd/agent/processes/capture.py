"""Runs a program of user code for a tool that reads what it writes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Call
from sandmeshd.agent.processes.spawner import Ended, Processes

MOST_WRITTEN: Final = 32 << 20
_CHUNK: Final = 256 << 10


@dataclass(frozen=True)
class Command:
    """A program, its directory and its whole environment."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Captured:
    """What a program wrote, and how it ended."""

    ended: Ended
    stdout: bytes
    stderr: bytes


@dataclass
class _Reading:
    """One pipe's bytes so far."""

    reader: int
    pieces: list[bytes] = field(default_factory=list[bytes])
    size: int = 0

    def read(self) -> bool:
        """Read what is there; False where there is no more, now or for good."""
        try:
            data = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return False
        self.size += len(data)
        if self.size <= MOST_WRITTEN:
            self.pieces.append(data)
        return bool(data)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


async def capture(processes: Processes, command: Command, call: Call) -> Captured:
    """Run a program to its end without input. What it leaves running has nobody to read its output.

    Raises:
        ToolFailure: It wrote more than 32 MiB, or no process could be made.
    """
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    pipes = [os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)]
    ends = [nothing, *(writer for _, writer in pipes)]
    readings = [_Reading(reader) for reader, _ in pipes]
    try:
        process = processes.spawn(command.argv, ends, cwd=command.cwd, env=command.env)
        await process.started
        with call.stopping(process.kill, process.signal):
            ended = await _read(readings, process.ended, process.kill)
    finally:
        for end in (*ends, *(reader for reader, _ in pipes)):
            os.close(end)
    if max(reading.size for reading in readings) > MOST_WRITTEN:
        raise ToolFailure(
            f"This is larger than {MOST_WRITTEN >> 20} MiB. Ask for less, or use run_shell_command and a file."
        )
    return Captured(ended, *(reading.data for reading in readings))


async def _read(readings: Sequence[_Reading], ended: asyncio.Future[Ended], kill: Callable[[], None]) -> Ended:
    loop = asyncio.get_running_loop()

    def follow(reading: _Reading) -> None:
        if not reading.read():
            loop.remove_reader(reading.reader)
        elif reading.size > MOST_WRITTEN:
            kill()

    for reading in readings:
        os.set_blocking(reading.reader, False)
        loop.add_reader(reading.reader, follow, reading)
    try:
        return await asyncio.shield(ended)
    finally:
        for reading in readings:
            loop.remove_reader(reading.reader)
            while reading.size <= MOST_WRITTEN and reading.read():
                pass
