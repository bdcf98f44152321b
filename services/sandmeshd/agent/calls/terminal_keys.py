"""Makes signals of the keys of a terminal, where the kernel does not: gVisor's passes Ctrl-C on as any other byte."""

from __future__ import annotations

import os
import signal
import termios
from contextlib import suppress
from functools import cache
from typing import Final

from sandmeshd.agent.userland.process_table import others

_SIGNALS: Final = {
    termios.VINTR: signal.SIGINT,
    termios.VQUIT: signal.SIGQUIT,
    termios.VSUSP: signal.SIGTSTP,
}
_LOCAL, _CHARACTERS = 3, 6
_SESSION: Final = 3


class Keys:
    """The keys of one terminal that are signals, for all that runs on it: which of that is in front is not known."""

    def __init__(self, master: int, name: str) -> None:
        """Take the end that is typed at, and the name of the other."""
        self._master = master
        self._name = name

    def find(self, data: bytes) -> int:
        """Give where the first of them is in what is typed, and its end where there is none."""
        keys = b"".join(self._meant())
        return next((at for at, key in enumerate(data) if key in keys), len(data))

    def press(self, key: bytes) -> None:
        """Send what a key means."""
        number = self._meant().get(key)
        for pid in self._there() if number else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number or 0)

    def _meant(self) -> dict[bytes, int]:
        attributes = termios.tcgetattr(self._master)
        if not attributes[_LOCAL] & termios.ISIG:
            return {}
        return {attributes[_CHARACTERS][at]: number for at, number in _SIGNALS.items()}

    def _there(self) -> list[int]:
        sessions = {fields[_SESSION] for pid, fields in others() if self._has(pid)}
        return [pid for pid, fields in others() if fields[_SESSION] in sessions]

    def _has(self, pid: int) -> bool:
        with suppress(OSError):
            return any(os.readlink(f"/proc/{pid}/fd/{number}") == self._name for number in range(3))  # noqa: PTH115 - pathlib is a slow import
        return False


@cache
def kernel_makes_signals() -> bool:
    """Say whether the kernel itself takes the key of a signal for one, by a terminal of this process's own."""
    master, slave = os.openpty()
    try:
        os.write(master, b"\x03x\n")
        return os.read(slave, 3) == b"x\n"
    finally:
        os.close(master)
        os.close(slave)
