"""The keys of a terminal, one by one as they are pressed."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

_SEQUENCES: Final = {b"\x1b[A": "k", b"\x1b[B": "j", b"\x1bOA": "k", b"\x1bOB": "j", b"\x1b[5~": "K", b"\x1b[6~": "J"}
"""What arrows and page keys send, as the letters that mean the same."""
_QUITS: Final = "\x03\x04"


class TerminalKeys:
    """Standard input while a screen is shown."""

    def __init__(self) -> None:
        self.pressed: asyncio.Queue[str] = asyncio.Queue()
        self._descriptor = sys.stdin.fileno()
        self._before: list[Any] = []

    @contextmanager
    def reading(self) -> Generator[None]:
        """Put each key into the queue; the terminal is as before afterwards."""
        self._before = termios.tcgetattr(self._descriptor)
        self._begin()
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def released(self) -> Generator[None]:
        """Leave the terminal to another program for a block."""
        self._end()
        try:
            yield
        finally:
            self._begin()

    def _begin(self) -> None:
        tty.setcbreak(self._descriptor)
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        data = os.read(self._descriptor, 64)
        found = _SEQUENCES.get(data)
        for key in (found,) if found else data.decode(errors="ignore") or "q":
            self.pressed.put_nowait("q" if key in _QUITS else key)
