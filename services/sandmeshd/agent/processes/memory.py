"""The memory limit of user code, and the kernel's count of processes killed for it."""

from __future__ import annotations

import os
import re
from typing import Final

_KILLS: Final = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


class Memory:
    """The memory limit of all of user code's processes together, and how many were killed for exceeding it."""

    def __init__(self, events: int = -1, limit_bytes: int = 0) -> None:
        """Take the descriptor of a control group's events; negative if memory is not limited."""
        self.is_limited = events >= 0
        """Whether processes can be killed for it."""
        self._events = events
        self.limit_bytes = limit_bytes
        """The limit; 0 where there is none."""

    def oom_kills(self) -> int:
        """Return how many processes the OOM killer has killed so far."""
        if not self.is_limited:
            return 0
        try:
            found = _KILLS.search(os.pread(self._events, 4096, 0))
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def out_of_memory_message(self) -> str:
        """Return the message for a process that was killed: the limit and what to do."""
        limit = _size(self.limit_bytes)
        return (
            f"The sandbox ran out of memory: its processes may use {limit} together, with what is in /tmp. "
            "Use less at a time, end processes that are no longer needed, or create a sandbox with more memory."
        )


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit and size * 10 % unit == 0:
            return f"{size / unit:g} {name}"
    return f"{size / (1 << 20):.1f} MiB"
