"""The standard input of a call."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument, TooLarge
from sandmeshd.agent.calls.terminal_keys import SignalKeys

_LARGEST_INPUT: Final = 1 << 20
_MOST_UNWRITTEN: Final = 16 << 20
_END_OF_FILE: Final = b"\x04"
"""The end of input for a terminal in canonical mode."""


class InputWriter:
    """Writes input to a process's descriptor, which it owns."""

    def __init__(self, descriptor: int, *, terminal: bool = False, keys: SignalKeys | None = None) -> None:
        self.descriptor = descriptor
        self._terminal = terminal
        self._keys = keys
        self._at_line_start = True

    def write(self, data: bytes) -> int:
        """Write what can be written now and return how many bytes that was."""
        if self._keys is not None and data:
            until = self._keys.find(data)
            if until == 0:
                self._keys.press(data[:1])
                return 1
            data = data[:until]
        try:
            count = os.write(self.descriptor, data) if data else 0
        except BlockingIOError:
            return 0
        except OSError:
            # The process has closed its end, which is not an error of the caller.
            return len(data)
        if count:
            self._at_line_start = data[count - 1 : count] == b"\n"
        return count

    def end(self) -> bool:
        """End the input; return whether the descriptor is to be closed for that."""
        if self._terminal:
            # In the middle of a line, the first one only ends the line.
            self.write(_END_OF_FILE if self._at_line_start else _END_OF_FILE * 2)
        return not self._terminal


class ProcessInput:
    """Data for a process, buffered until the process's end is open, with the sequences taken and written."""

    def __init__(self, on_written: Callable[[], None]) -> None:
        self.reader = -1
        """The process's end of the pipe, until `close_reader`."""
        self._writer: InputWriter | None = None
        self._consumer: Callable[[bytes], None] | None = None
        self._delivered: deque[tuple[int, int]] = deque()
        self._on_written = on_written
        self._loop = asyncio.get_running_loop()
        self._unwritten: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._ends = False
        self.taken = 0
        """The last Input that was taken."""
        self.written = 0
        """The last one that was written to the process's pipe in full."""

    def open_pipe(self) -> int:
        """Open a pipe for a process and return its reading end, which `close_reader` closes here."""
        self.reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        self._open(InputWriter(writer))
        return self.reader

    def open_socket(self, descriptor: int) -> None:
        """Write to a connected socket from now on; the descriptor is copied."""
        self._open(InputWriter(os.dup(descriptor)))

    def open_terminal(self, master: int, keys: SignalKeys | None = None) -> None:
        """Write to a terminal from now on; the descriptor is copied. Signal keys that `keys` finds are not written."""
        writer = os.dup(master)
        os.set_blocking(writer, False)
        self._open(InputWriter(writer, terminal=True, keys=keys))

    def deliver_to(self, consumer: Callable[[bytes], None]) -> None:
        """Pass each piece to a function from now on, and b"" at the end; `mark_written` follows each but the last."""
        self._consumer = consumer
        self._write()

    def mark_written(self) -> None:
        """Record that the oldest piece which the consumer has was written."""
        if self._delivered:
            self.written, size = self._delivered.popleft()
            self._size -= size
            self._on_written()

    @property
    def ended(self) -> bool:
        """Whether the caller has ended the input."""
        return self._ends

    def take(self, item: pb.Input) -> None:
        """Take the next Input; a duplicate is ignored.

        Raises:
            InvalidArgument: One before it is missing, or standard input was ended.
            TooLarge: The buffer is full; send it again later.
        """
        if item.sequence <= self.taken:
            return
        self._check(item)
        self.taken = item.sequence
        self._ends = item.end
        self._size += len(item.data)
        self._unwritten.append((item.sequence, item.data))
        self._write()

    def _check(self, item: pb.Input) -> None:
        if item.sequence != self.taken + 1:
            raise InvalidArgument(
                f"input {item.sequence} came after {self.taken}: send from input_ack_sequence + 1",
                {"input_ack_sequence": str(self.taken)},
            )
        if self._ends:
            raise InvalidArgument("standard input has already been ended")
        if len(item.data) > _LARGEST_INPUT or self._size + len(item.data) > _MOST_UNWRITTEN:
            raise TooLarge("the input buffer is full, or one input is over 1 MiB: send it later, in parts")

    def close_reader(self) -> None:
        """Close the end that the process has inherited."""
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1

    def close(self) -> None:
        """Close both ends; what was not written is lost."""
        self.close_reader()
        self._close_writer()
        self._unwritten.clear()
        if self._consumer is not None:
            self._consumer(b"")

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._loop.remove_writer(self._writer.descriptor)
            os.close(self._writer.descriptor)
            self._writer = None

    def _open(self, writer: InputWriter) -> None:
        self._writer = writer
        self._write()

    def _write(self) -> None:
        if self._consumer is not None:
            self._deliver(self._consumer)
        elif self._writer is not None:
            self._write_out(self._writer)

    def _deliver(self, consumer: Callable[[bytes], None]) -> None:
        while self._unwritten:
            sequence, data = self._unwritten.popleft()
            self._delivered.append((sequence, len(data)))
            if data:
                consumer(data)
            else:
                self.mark_written()
        if self._ends:
            consumer(b"")

    def _write_out(self, writer: InputWriter) -> None:
        before = self.written
        while self._unwritten:
            sequence, data = self._unwritten[0]
            count = writer.write(data)
            self._size -= count
            if count < len(data):
                self._unwritten[0] = sequence, data[count:]
                self._loop.add_writer(writer.descriptor, self._write)
                break
            self._unwritten.popleft()
            self.written = sequence
        if not self._unwritten:
            self._loop.remove_writer(writer.descriptor)
            if self._ends and writer.end():
                self._close_writer()
        if self.written > before:
            self._on_written()
