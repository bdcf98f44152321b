"""The reading ends of pipes that user code writes to."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import termios
from collections import deque
from contextlib import suppress
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import CHUNK, SMALLEST_READ, RunningCall
from sandmeshd.agent.userland.core import syscalls

_MOST_PIPES: Final = 64
_LARGE_PIPE: Final = 1 << 20
_FLOWING: Final = 128 << 10
"""After so many bytes output is bulk rather than what somebody waits for."""
_READS_IN_A_ROW: Final = 4
"""Before others have their turn."""
_GATHER_SECONDS: Final = 0.001
"""How long a pipe of bulk output that was emptied is left to fill, where system calls are slow."""


def pending(fd: int) -> int:
    """Return how many bytes a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


class OutputPipe:
    """The reading end of a pipe, whose bytes go to the attached call as fast as its subscriber takes them.

    Without a call nothing is read: a background process blocks once the pipe is full, or writes to the next call.
    """

    def __init__(self, stream: int, ends: tuple[int, int] | None = None, *, gathers: bool | None = None) -> None:
        """Open a pipe, or take its ends. With `gathers` bulk output waits for more: by default where that is faster."""
        self.stream = stream
        self.reader, self.writer = ends or os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        # In gVisor's kernel each system call costs as much as copying 64 KiB.
        self._gathers = ends is None and not syscalls.keeps_file_ids() if gathers is None else gathers
        self._total = 0
        self._loop = asyncio.get_running_loop()
        self.call: RunningCall | None = None
        """The call that the output belongs to; `watch` begins to read for it."""
        self.watched = False
        self.ended = False
        """Whether every writer is gone."""

    def close_writer(self) -> None:
        """Close the end that the process has inherited."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_writer()
        self.ended = True
        if self.reader >= 0:
            self._unwatch()
            os.close(self.reader)
            self.reader = -1

    async def drain(self, call: RunningCall) -> None:
        """Read what the pipe holds now, waiting for room in the call."""
        self._total = 0
        left = 0 if self.ended else pending(self.reader)
        while left > 0 and not self.ended:
            room = call.room
            if room < SMALLEST_READ:
                await call.roomier()
            else:
                # Nothing, if another process has read it.
                left -= self._read(min(left, room)) or left

    def detach_reader(self) -> int | None:
        """Detach the reading end and return it, None if there is no writer any more."""
        if self.ended:
            return None
        self._unwatch()
        fd, self.reader = self.reader, -1
        self.close()
        return fd

    def watch(self) -> None:
        """Read whenever there is output and the call has room."""
        if not self.watched and not self.ended:
            self._loop.add_reader(self.reader, self._readable)
            self.watched = True

    def _unwatch(self) -> None:
        if self.watched:
            self._loop.remove_reader(self.reader)
            self.watched = False

    def _readable(self) -> None:
        if self.call is None:
            self._unwatch()
        elif self.call.room < SMALLEST_READ:
            self._unwatch()
            self.call.when_room(self.watch)
        else:
            self._read(self.call.room)
            if self._gathers and self._total > _FLOWING:
                self._unwatch()
                with suppress(OSError):
                    fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, _LARGE_PIPE)
                self._loop.call_later(_GATHER_SECONDS, self._flow)

    def _flow(self) -> None:
        """Read bulk output every so often, until there was none: to be told of some takes eight system calls."""
        for turn in range(_READS_IN_A_ROW):
            if self.call is None or self.ended:
                return
            room = self.call.room
            if room < SMALLEST_READ:
                self.call.when_room(self._flow)
                return
            size = self._read(room)
            if size == 0 and turn == 0:
                self.watch()
                return
            if size < room:
                self._loop.call_later(_GATHER_SECONDS, self._flow)
                return
        self._loop.call_soon(self._flow)

    def _read(self, size: int) -> int:
        """Read at most so much for the call; return how much it was."""
        try:
            data = os.read(self.reader, size)
        except BlockingIOError:
            return 0
        except OSError:
            # A terminal whose slave end is closed reports EIO.
            data = b""
        self._total += len(data)
        if self.call is not None and data:
            self.call.output(self.stream, data)
        if not data:
            self._unwatch()
            self.ended = True
        return len(data)


def output_pipes() -> tuple[OutputPipe, OutputPipe]:
    """Open pipes for both outputs of a process.

    Raises:
        OSError: There are no free descriptors; then nothing is left open.
    """
    out = OutputPipe(pb.STREAM_STDOUT)
    try:
        return out, OutputPipe(pb.STREAM_STDERR)
    except OSError:
        out.close()
        raise


class Drain:
    """Reads and discards what background processes write after their call has ended, so that they do not block."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fds: deque[int] = deque()

    def take(self, pipe: OutputPipe) -> None:
        """Take over a pipe, and close the oldest beyond a maximum."""
        fd = pipe.detach_reader()
        if fd is not None:
            self._fds.append(fd)
            self._loop.add_reader(fd, self._readable, fd)
            if len(self._fds) > _MOST_PIPES:
                self._close(self._fds[0])

    def close(self) -> None:
        """Close all."""
        while self._fds:
            self._close(self._fds[0])

    def _readable(self, fd: int) -> None:
        if not os.read(fd, CHUNK):
            self._close(fd)

    def _close(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        os.close(fd)
        self._fds.remove(fd)
