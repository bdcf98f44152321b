"""The last lines that a process of user code wrote to its standard error."""

from __future__ import annotations

import asyncio
import os
from typing import Final

_KEPT: Final = 16 << 10
_TURN: Final = 64 << 10
_REST_SECONDS: Final = 0.02
"""Between two reads: a process that floods its standard error blocks itself, not the agent."""
_LINES: Final = 20
_LONGEST: Final = 300


def plain(text: str) -> str:
    """Return a text without characters that UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


class StderrTail:
    """Reads a pipe until its end and keeps the last lines."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        """`writer` is for the process, until `close_writer`."""
        os.set_blocking(self._reader, False)
        self._loop = asyncio.get_running_loop()
        self._kept = b""
        self._rest: asyncio.TimerHandle | None = None
        self._watch()

    def close_writer(self) -> None:
        """Close the writing end, which the process has inherited."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Read what is there and close the pipe."""
        self.close_writer()
        if self._reader >= 0:
            self._take()
        if self._reader >= 0:
            self._end()

    def lines(self) -> list[str]:
        """Return the last lines."""
        text = self._kept.decode("utf-8", "replace")
        return [line[:_LONGEST] for line in text.splitlines() if line.strip()][-_LINES:]

    def _watch(self) -> None:
        self._rest = None
        self._loop.add_reader(self._reader, self._readable)

    def _readable(self) -> None:
        self._take()
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            self._rest = self._loop.call_later(_REST_SECONDS, self._watch)

    def _take(self) -> None:
        try:
            data = os.read(self._reader, _TURN)
        except BlockingIOError:
            return
        self._kept = (self._kept + data)[-_KEPT:]
        if not data:
            self._end()

    def _end(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        self._reader = -1
