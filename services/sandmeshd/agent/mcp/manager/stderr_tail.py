"""The last words of a process of user code: what it wrote to its standard error."""

from __future__ import annotations

import asyncio
import os
from typing import Final

_KEPT: Final = 16 << 10
_TURN: Final = 64 << 10
_REST_SECONDS: Final = 0.02
"""Between two turns of reading: one that floods its standard error holds up itself, not the agent."""
_LINES: Final = 20
_LONGEST: Final = 300


def plain(text: str) -> str:
    """Give a text without what no UTF-8 can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


class LastWords:
    """Reads a pipe for as long as somebody writes and keeps the end of what came."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        """`writer` is for the process, until `close_writer`."""
        os.set_blocking(self._reader, False)
        self._loop = asyncio.get_running_loop()
        self._kept = b""
        self._rest: asyncio.TimerHandle | None = None
        self._watch()

    def close_writer(self) -> None:
        """Let go of the end that the process has by now."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Read what is there and let go."""
        self.close_writer()
        if self._reader >= 0:
            self._take()
        if self._reader >= 0:
            self._end()

    def lines(self) -> list[str]:
        """Give the last lines."""
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
