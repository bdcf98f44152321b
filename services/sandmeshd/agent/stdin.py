"""What a caller sends to a call's standard input."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument, TooLarge

_LARGEST_INPUT: Final = 1 << 20
_MOST_UNWRITTEN: Final = 16 << 20


class InputPipe:
    """A pipe to a process, and the numbers of what was taken for it."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        self._loop = asyncio.get_running_loop()
        self._unwritten: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._ends = False
        self.taken = 0
        """The last Input that was taken."""
        self.written = 0
        """The last one that the process's pipe holds whole."""

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

    def _close_writer(self) -> None:
        if self._writer >= 0:
            self._loop.remove_writer(self._writer)
            os.close(self._writer)
            self._writer = -1

    def _write(self) -> None:
        while self._unwritten and self._writer >= 0:
            sequence, data = self._unwritten[0]
            count = self._try(data)
            self._size -= count
            if count < len(data):
                self._unwritten[0] = sequence, data[count:]
                self._loop.add_writer(self._writer, self._write)
                return
            self._unwritten.popleft()
            self.written = sequence
        if self._writer >= 0:
            self._loop.remove_writer(self._writer)
        if self._ends:
            self._close_writer()

    def _try(self, data: bytes) -> int:
        try:
            return os.write(self._writer, data) if data else 0
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            # The process reads no more; that is its own affair.
            return len(data)
