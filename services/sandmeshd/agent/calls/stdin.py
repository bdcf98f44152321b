"""What a caller sends to a call's standard input."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument, TooLarge
from sandmeshd.agent.calls.terminal_keys import Keys

_LARGEST_INPUT: Final = 1 << 20
_MOST_UNWRITTEN: Final = 16 << 20
_END_OF_FILE: Final = b"\x04"
"""What a terminal in its usual mode takes as the end of input."""


class Input:
    """Data for a process, the numbers of what was taken for it, and where it goes once the process is there."""

    def __init__(self, on_written: Callable[[], None]) -> None:
        self.reader = -1
        """The process's end of the pipe, until `close_reader`."""
        self._writer = -1
        self._terminal = False
        self._taker: Callable[[bytes], None] | None = None
        self._handed: deque[tuple[int, int]] = deque()
        self._on_written = on_written
        self._keys: Keys | None = None
        self._loop = asyncio.get_running_loop()
        self._unwritten: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._ends = False
        self._at_line_start = True
        self.taken = 0
        """The last Input that was taken."""
        self.written = 0
        """The last one that the process's pipe holds whole."""

    def open_pipe(self) -> int:
        """Make a pipe for a process and give its reading end, which `close_reader` closes here."""
        self.reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        self._write()
        return self.reader

    def open_socket(self, descriptor: int) -> None:
        """Write to a connected socket from now on; the descriptor is copied."""
        self._writer = os.dup(descriptor)
        self._write()

    def open_terminal(self, master: int, keys: Keys | None = None) -> None:
        """Write to a terminal from now on; the descriptor is copied. What `keys` finds is pressed, not written."""
        self._keys = keys
        self._writer = os.dup(master)
        self._terminal = True
        os.set_blocking(self._writer, False)
        self._write()

    def give_to(self, taker: Callable[[bytes], None]) -> None:
        """Give each piece to a function from now on, nothing at the end; `mark_written` follows each but that."""
        self._taker = taker
        self._write()

    def mark_written(self) -> None:
        """Note that the next piece which a function was given is where it should be."""
        if self._handed:
            self.written, size = self._handed.popleft()
            self._size -= size
            self._on_written()

    @property
    def ended(self) -> bool:
        """Whether the caller said that nothing follows."""
        return self._ends

    def take(self, item: pb.Input) -> None:
        """Take the next Input; one that was taken before is left.

        Raises:
            InvalidArgument: One is missing before it, or standard input was ended.
            TooLarge: More waits than the process reads; send it again later.
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
            raise InvalidArgument("standard input was ended before")
        if len(item.data) > _LARGEST_INPUT or self._size + len(item.data) > _MOST_UNWRITTEN:
            raise TooLarge("more input waits than the process reads, or one is over 1 MiB: send it later, in parts")

    def close_reader(self) -> None:
        """Let go of the end that the process has by now."""
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1

    def close(self) -> None:
        """Let go of both ends; what was not written is lost."""
        self.close_reader()
        self._close_writer()
        self._unwritten.clear()
        if self._taker is not None:
            self._taker(b"")

    def _close_writer(self) -> None:
        if self._writer >= 0:
            self._loop.remove_writer(self._writer)
            os.close(self._writer)
            self._writer = -1

    def _write(self) -> None:
        if self._taker is not None:
            self._hand(self._taker)
        elif self._writer >= 0:
            self._write_out()

    def _hand(self, taker: Callable[[bytes], None]) -> None:
        while self._unwritten:
            sequence, data = self._unwritten.popleft()
            self._handed.append((sequence, len(data)))
            if data:
                taker(data)
            else:
                self.mark_written()
        if self._ends:
            taker(b"")

    def _write_out(self) -> None:
        before = self.written
        while self._unwritten and self._writer >= 0:
            sequence, data = self._unwritten[0]
            count = self._try(data)
            self._size -= count
            if count < len(data):
                self._unwritten[0] = sequence, data[count:]
                self._loop.add_writer(self._writer, self._write)
                break
            self._unwritten.popleft()
            self.written = sequence
        if not self._unwritten and self._writer >= 0:
            self._rest()
        if self.written > before:
            self._on_written()

    def _rest(self) -> None:
        """Wait for more, or end the input."""
        self._loop.remove_writer(self._writer)
        if self._ends and self._terminal:
            # The first ends a line that is not whole.
            self._try(_END_OF_FILE if self._at_line_start else _END_OF_FILE * 2)
        elif self._ends:
            self._close_writer()

    def _try(self, data: bytes) -> int:
        if self._keys is not None and data:
            until = self._keys.find(data)
            if until == 0:
                self._keys.press(data[:1])
                return 1
            data = data[:until]
        try:
            count = os.write(self._writer, data) if data else 0
        except BlockingIOError:
            return 0
        except OSError:
            # The process reads no more; that is its own affair.
            return len(data)
        if count:
            self._at_line_start = data[count - 1 : count] == b"\n"
        return count
