"""What a program's standard descriptors are tied to: pipes, or a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Sequence
from typing import Final, Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import SMALLEST_READ, Call
from sandmeshd.agent.calls.terminal_keys import Keys, kernel_makes_signals
from sandmeshd.agent.processes.pipes import Drain, OutputPipe

_MOST_LAST_WORDS: Final = 256 << 10
"""What is read of a terminal after its program ended; the kernel keeps less."""


class Streams(Protocol):
    """The agent's side of a program's descriptors."""

    terminal: bool

    def descriptors(self, call: Call) -> Sequence[int]:
        """Give what the program gets as 0, 1 and 2; the call's input is tied to it."""
        ...

    def launched(self, call: Call) -> None:
        """Let go of the program's ends."""
        ...

    def follow(self, call: Call) -> None:
        """Give the call the program's output from now on: it has been told that the program runs."""
        ...

    async def finish(self, call: Call) -> None:
        """Give the call what the program had written when it ended."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Pipes:
    """Two pipes; input is a third, or nothing. What the program left in the background goes on, its output unread."""

    terminal = False

    def __init__(self, drain: Drain, nothing: int) -> None:
        self._pipes = OutputPipe(pb.STREAM_STDOUT), OutputPipe(pb.STREAM_STDERR)
        self._drain = drain
        self._nothing = nothing

    def descriptors(self, call: Call) -> Sequence[int]:
        """Give what the program gets as 0, 1 and 2."""
        source = self._nothing if call.input is None else call.input.open_pipe()
        return [source, *(pipe.writer for pipe in self._pipes)]

    def launched(self, call: Call) -> None:
        """Let go of the program's ends."""
        if call.input is not None:
            call.input.close_reader()
        for pipe in self._pipes:
            pipe.close_writer()

    def follow(self, call: Call) -> None:
        """Give the call the program's output from now on."""
        for pipe in self._pipes:
            pipe.give_to(call)

    async def finish(self, call: Call) -> None:
        """Give the call what the program had written when it ended."""
        for pipe in self._pipes:
            await pipe.drain(call)

    def close(self) -> None:
        """Leave what is still written to the drain."""
        for pipe in self._pipes:
            pipe.close_writer()
            self._drain.take(pipe)
            pipe.close()


class Terminal:
    """A pseudo-terminal, which both writes of the program go to and its input comes from."""

    terminal = True

    def __init__(self, rows: int, columns: int) -> None:
        self._master, slave = os.openpty()
        self._keys = None if kernel_makes_signals() else Keys(self._master, os.ttyname(slave))
        self._pipe = OutputPipe(pb.STREAM_STDOUT, (self._master, slave))
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        """Change its size; the program in its foreground gets a SIGWINCH."""
        if self._pipe.reader >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def descriptors(self, call: Call) -> Sequence[int]:
        """Give what the program gets as 0, 1 and 2."""
        if call.input is not None:
            call.input.open_terminal(self._master, self._keys)
        return [self._pipe.writer] * 3

    def launched(self, call: Call) -> None:
        """Let go of the program's end."""
        self._pipe.close_writer()

    def follow(self, call: Call) -> None:
        """Give the call the program's output from now on."""
        self._pipe.give_to(call)

    async def finish(self, call: Call) -> None:
        """Give the call what the program had written when it ended."""
        self._pipe.give_to(None)
        left = _MOST_LAST_WORDS
        while left > 0 and (data := self._read(min(left, SMALLEST_READ))):
            while call.room < len(data):
                await call.roomier()
            call.output(pb.STREAM_STDOUT, data)
            left -= len(data)

    def close(self) -> None:
        """Hang up: what still runs on the terminal gets a SIGHUP."""
        self._pipe.close()

    def _read(self, size: int) -> bytes:
        if self._pipe.ended:
            return b""
        try:
            return os.read(self._master, size)
        except OSError:
            # EAGAIN: nothing more was written. EIO: nobody has the other end.
            return b""
