"""The owner of this process, where it was started by `spawn_child`: its pipe, and the pipe for status messages."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import Any

from sandmesh.errors import SandmeshError
from sandmesh.shared.child_process import error_status

_LONGEST_LINE = 1 << 20


class StatusPipe:
    """Writes JSON lines to the process that waits for this one to start."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def progress(self, message: str, fraction: float) -> None:
        """Report a step of the start."""
        self._write({"progress": {"message": message, "fraction": fraction}})

    def fail(self, error: SandmeshError) -> None:
        """Report the error that prevents the start."""
        self._write(error_status(error))

    def finish(self, result: dict[str, Any]) -> None:
        """Report the result of the start, and close the pipe."""
        self._write(result)
        os.close(self._descriptor)

    def _write(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the reader's end is not a reason for this process to end
            os.write(self._descriptor, json.dumps(message).encode() + b"\n")


class Owner:
    """The process that holds the other ends of the two pipes."""

    def __init__(self, descriptor: int, status: StatusPipe) -> None:
        os.set_inheritable(descriptor, False)
        self.status = status
        self.ended = asyncio.Event()
        """Set when the owner has closed its pipe, or has ended; requires `connect`."""
        self._descriptor = descriptor
        self._watcher: asyncio.Task[None] | None = None

    async def connect(self) -> asyncio.StreamReader:
        """Open the owner pipe for reading in the running loop."""
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        pipe = os.fdopen(self._descriptor, "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        return reader

    def watch(self, reader: asyncio.StreamReader) -> None:
        """Set `ended` at the end of what the owner writes."""
        self._watcher = asyncio.create_task(self._drain(reader))

    async def _drain(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(4096):
            pass
        self.ended.set()


def find_owner(module: str, description: str | None) -> Owner:
    """Return the owner that the command line names; signals of its terminal are ignored from now on."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--owner-fd", type=int, required=True, help="read end of a pipe that only the owner holds")
    parser.add_argument("--ready-fd", type=int, required=True, help="write end of the pipe for status messages")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return Owner(options.owner_fd, StatusPipe(options.ready_fd))
