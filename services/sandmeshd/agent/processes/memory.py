"""Whether user code ran out of memory, as the kernel counts it."""

from __future__ import annotations

import os
import re
from typing import Final

_KILLS: Final = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


class Memory:
    """What user code's processes may use together, and how many of them were ended because they wanted more."""

    def __init__(self, events: int = -1, limit_bytes: int = 0) -> None:
        """Take the descriptor of a control group's events; negative where memory has no limit of its own."""
        self._events = events
        self._limit = limit_bytes

    def kills(self) -> int:
        """Give how many processes were ended for want of memory so far."""
        if self._events < 0:
            return 0
        try:
            found = _KILLS.search(os.pread(self._events, 4096, 0))
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def ran_out(self) -> str:
        """Say that memory ran out, its limit and what to do."""
        limit = _size(self._limit)
        return (
            f"The sandbox ran out of memory: its processes may use {limit} together, with what is in /tmp. "
            "Use less at a time, end what is no longer needed, or take a sandbox with a higher limit of memory."
        )


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit and size * 10 % unit == 0:
            return f"{size / unit:g} {name}"
    return f"{size / (1 << 20):.1f} MiB"
