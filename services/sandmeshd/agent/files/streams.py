"""Bytes between calls and threads: what a thread makes becomes output, input becomes a pipe that a thread reads."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmeshd.agent.calls.call import CHUNK, RunningCall
from sandmeshd.agent.files.failures import CallStopped

R = TypeVar("R")

_PIPE: Final = 1 << 20
_THREADS: Final = 64


class Threads:
    """Threads for transfers, which may each take long and must not hold up the file tools'."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, "files")

    async def run(self, function: Callable[..., R], *arguments: Any) -> R:
        """Run a function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


async def pump(call: RunningCall, threads: Threads, chunks: Iterator[bytes]) -> None:
    """Write the chunks that a thread makes as output, no faster than the caller reads.

    Raises:
        CallStopped: The call was stopped, or has no reader any more.
    """
    try:
        while chunk := await threads.run(_next, chunks):
            view = memoryview(chunk)
            for at in range(0, len(view), CHUNK):
                await put(call, bytes(view[at : at + CHUNK]))
    finally:
        await threads.run(_close, chunks)


async def put(call: RunningCall, piece: bytes) -> None:
    """Write a piece of output, at most CHUNK bytes, once there is room.

    Raises:
        CallStopped: The call was stopped, or has no reader any more.
    """
    while call.room < len(piece) and not is_stopped(call):
        await call.roomier()
    if is_stopped(call):
        raise CallStopped
    call.output(pb.STREAM_STDOUT, piece)


def is_stopped(call: RunningCall) -> bool:
    """Return whether the call was stopped."""
    return call.stop_reason is not None or call.forsaken


async def unless_stopped(call: RunningCall, work: Coroutine[Any, Any, R]) -> R:
    """Wait for something, but no longer than somebody waits for the call.

    Raises:
        CallStopped: The call was stopped, or has no reader any more.
    """
    task = asyncio.ensure_future(work)
    stopped = asyncio.create_task(_until_stopped(call))
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if is_stopped(call):
            raise CallStopped
        return task.result()
    finally:
        task.cancel()
        stopped.cancel()


async def _until_stopped(call: RunningCall) -> None:
    while not is_stopped(call):
        await call.roomier()


def _next(chunks: Iterator[bytes]) -> bytes:
    return next(chunks, b"")


def _close(chunks: Iterator[bytes]) -> None:
    close = getattr(chunks, "close", None)
    if close is not None:
        close()


class InputReader:
    """A call's input for a thread, ended early when the call is stopped or the rest will not be sent."""

    def __init__(self, call: RunningCall) -> None:
        """Take the input.

        Raises:
            InvalidArgument: The call has none.
        """
        if call.input is None:
            raise InvalidArgument("the file's content comes as input: start the call with takes_input")
        self._call = call
        self._input = call.input
        self._loop = asyncio.get_running_loop()
        self._pieces: SimpleQueue[bytes] = SimpleQueue()

    def open_pipe(self) -> int:
        """Route the input through a pipe, and return the reading end, which the caller closes."""
        reader = os.dup(self._input.open_pipe())
        self._input.close_reader()
        with suppress(OSError):  # beyond what a user may have in pipes, a smaller one does
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE)
        return reader

    def open_queue(self) -> None:
        """Route the input through `take`, so that a thread which writes to a disk blocks no pipe of the loop."""
        self._input.deliver_to(self._pieces.put)

    def take(self, written: bytes) -> bytes:
        """Report a written piece (empty at first) from a thread, and wait for the next; an empty one is the end."""
        if written:
            self._loop.call_soon_threadsafe(self._input.mark_written)
        return self._pieces.get()

    @property
    def whole(self) -> bool:
        """Whether the input came to its end and was not cut off."""
        return self._input.ended and self._call.stop_reason is None

    @property
    def stopped(self) -> bool:
        """Whether nothing more comes although the input did not end."""
        return self._call.stop_reason is not None

    async def feed(self, threads: Threads, function: Callable[[InputReader], R]) -> R:
        """Run a function of the input in a thread while the caller sends; it asks `whole` before it keeps anything."""
        forsaken = asyncio.create_task(self._until_forsaken())
        try:
            with self._call.stopping(self._input.close):
                return await threads.run(function, self)
        finally:
            forsaken.cancel()

    async def _until_forsaken(self) -> None:
        await _until_stopped(self._call)
        self._call.stop(pb.END_REASON_CANCELLED)
