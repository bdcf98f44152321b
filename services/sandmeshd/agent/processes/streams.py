"""A program's standard descriptors: pipes, or a new terminal."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Sequence
from typing import Final, Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import SMALLEST_READ, RunningCall
from sandmeshd.agent.calls.terminal_keys import SignalKeys, kernel_makes_signals
from sandmeshd.agent.processes.pipes import Drain, OutputPipe, output_pipes

_MOST_AFTER_END: Final = 256 << 10
"""What is read of a terminal after its program has ended; the kernel buffers less."""


class Streams(Protocol):
    """The agent's side of a program's descriptors."""

    terminal: bool

    def descriptors(self, call: RunningCall) -> Sequence[int]:
        """Return the program's descriptors 0, 1 and 2; the call's input is connected to them."""
        ...

    def launched(self, call: RunningCall) -> None:
        """Close the program's ends."""
        ...

    def follow(self, call: RunningCall) -> None:
        """Write the program's output to the call from now on; the call has its started event."""
        ...

    async def finish(self, call: RunningCall) -> None:
        """Write to the call what the program had written when it ended."""
        ...

    def close(self) -> None:
        """Close everything."""
        ...


class Pipes:
    """Pipes for both outputs, and for input if the call has any. Output of background processes is discarded."""

    terminal = False

    def __init__(self, drain: Drain, null: int) -> None:
        self._pipes = output_pipes()
        self._drain = drain
        self._null = null

    def descriptors(self, call: RunningCall) -> Sequence[int]:
        """Return the program's descriptors 0, 1 and 2."""
        source = self._null if call.input is None else call.input.open_pipe()
        return [source, *(pipe.writer for pipe in self._pipes)]

    def launched(self, call: RunningCall) -> None:
        """Close the program's ends."""
        if call.input is not None:
            call.input.close_reader()
        for pipe in self._pipes:
            pipe.close_writer()

    def follow(self, call: RunningCall) -> None:
        """Write the program's output to the call from now on."""
        for pipe in self._pipes:
            pipe.call = call
            pipe.watch()

    async def finish(self, call: RunningCall) -> None:
        """Write to the call what the program had written when it ended."""
        for pipe in self._pipes:
            await pipe.drain(call)

    def close(self) -> None:
        """Leave further output to the drain."""
        for pipe in self._pipes:
            pipe.close_writer()
            self._drain.take(pipe)
            pipe.close()


class PseudoTerminal:
    """A pseudo-terminal, which carries both outputs of the program and its input."""

    terminal = True

    def __init__(self, rows: int, columns: int) -> None:
        self._master, slave = os.openpty()
        self._keys = None if kernel_makes_signals() else SignalKeys(self._master, os.ttyname(slave))
        self._pipe = OutputPipe(pb.STREAM_STDOUT, (self._master, slave))
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        """Change its size; the program in its foreground gets a SIGWINCH."""
        if self._pipe.reader >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def descriptors(self, call: RunningCall) -> Sequence[int]:
        """Return the program's descriptors 0, 1 and 2."""
        if call.input is not None:
            call.input.open_terminal(self._master, self._keys)
        return [self._pipe.writer] * 3

    def launched(self, call: RunningCall) -> None:
        """Close the program's end."""
        self._pipe.close_writer()

    def follow(self, call: RunningCall) -> None:
        """Write the program's output to the call from now on."""
        self._pipe.call = call
        self._pipe.watch()

    async def finish(self, call: RunningCall) -> None:
        """Write to the call what the program had written when it ended."""
        self._pipe.call = None
        left = _MOST_AFTER_END
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
            # EAGAIN: nothing more was written. EIO: the other end is closed.
            return b""
