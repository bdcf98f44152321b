"""Sends the signals of a terminal's keys where the kernel does not: gVisor's passes Ctrl-C on as any other byte."""

from __future__ import annotations

import os
import signal
import termios
from contextlib import suppress
from functools import cache
from typing import Final

from sandmeshd.agent.userland.core.process_table import others

_SIGNALS: Final = {
    termios.VINTR: signal.SIGINT,
    termios.VQUIT: signal.SIGQUIT,
    termios.VSUSP: signal.SIGTSTP,
}
_LOCAL, _CHARACTERS = 3, 6
_SESSION: Final = 3


class SignalKeys:
    """The signal keys of one terminal. They reach all that runs on it: its foreground process group is not known."""

    def __init__(self, master: int, name: str) -> None:
        """Take the master end, and the name of the slave."""
        self._master = master
        self._name = name

    def find(self, data: bytes) -> int:
        """Return the index of the first signal key in the input, its length where there is none."""
        keys = b"".join(self._signals())
        return next((at for at, key in enumerate(data) if key in keys), len(data))

    def press(self, key: bytes) -> None:
        """Send the signal of a key."""
        number = self._signals().get(key)
        for pid in self._processes() if number else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number or 0)

    def _signals(self) -> dict[bytes, int]:
        attributes = termios.tcgetattr(self._master)
        if not attributes[_LOCAL] & termios.ISIG:
            return {}
        return {attributes[_CHARACTERS][at]: number for at, number in _SIGNALS.items()}

    def _processes(self) -> list[int]:
        sessions = {fields[_SESSION] for pid, fields in others() if self._has(pid)}
        return [pid for pid, fields in others() if fields[_SESSION] in sessions]

    def _has(self, pid: int) -> bool:
        with suppress(OSError):
            return any(os.readlink(f"/proc/{pid}/fd/{number}") == self._name for number in range(3))  # noqa: PTH115 - pathlib is a slow import
        return False


@cache
def kernel_makes_signals() -> bool:
    """Return whether the kernel itself handles signal keys, by trying it on a terminal of this process's own."""
    master, slave = os.openpty()
    try:
        os.write(master, b"\x03x\n")
        return os.read(slave, 3) == b"x\n"
    finally:
        os.close(master)
        os.close(slave)
