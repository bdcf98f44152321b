"""Pipes between the driver and what it starts, and the JSON lines on them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from sandmeshd.drivers.node.agent_config import CONFIG_BYTES
from sandmeshd.runtime.processes.child_process import readable

PIPE_BYTES = 1 << 16
READY_BYTES = 1 << 16


@dataclass
class Pipe:
    """A pipe's two ends; -1 is one that was closed or detached."""

    reader: int
    writer: int

    @staticmethod
    def new() -> Pipe:
        """Return a new pipe."""
        return Pipe(*os.pipe2(os.O_CLOEXEC))

    def fill(self, data: bytes) -> None:
        """Write data that fits into the pipe, without waiting for the reader."""
        if len(data) > PIPE_BYTES:
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, CONFIG_BYTES)
        os.write(self.writer, data)

    def close_reader(self) -> None:
        """Close this process's copy of the end."""
        os.close(self.reader)
        self.reader = -1

    def close_writer(self) -> None:
        """Close this process's copy of the end."""
        os.close(self.writer)
        self.writer = -1

    def detach_writer(self) -> int:
        """Return the writer, which the caller closes."""
        writer, self.writer = self.writer, -1
        return writer

    def close(self) -> None:
        """Close the ends that are open."""
        ends, self.reader, self.writer = (self.reader, self.writer), -1, -1
        for descriptor in ends:
            if descriptor >= 0:
                os.close(descriptor)


@contextmanager
def open_pipe() -> Generator[Pipe]:
    """Yield a pipe, whose ends are closed when the block ends."""
    pipe = Pipe.new()
    try:
        yield pipe
    finally:
        pipe.close()


async def read_object(reader: int) -> bytes:
    """Return a JSON object with a line end from a pipe, or what came until it was closed."""
    data = b""
    while not data.endswith(b"}\n") and len(data) < READY_BYTES:
        await readable(reader)
        part = os.read(reader, 4096)
        if not part:
            break
        data += part
    return data


def parse(line: bytes) -> dict[str, object]:
    """Return a JSON object, empty if the line is not one."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, object]", message) if isinstance(message, dict) else {}
