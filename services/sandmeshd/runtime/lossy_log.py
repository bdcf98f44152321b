"""A stream for log lines that nothing fails by: on a full disk, or with nobody reading, lines are lost and counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TextIO


class LossyStream:
    """Writes lines where it can; the first that is written again says how many were not."""

    def __init__(self, target: TextIO) -> None:
        self._target = target
        self.lost = 0
        """Lines since the last that was written."""

    def write(self, text: str) -> int:
        """Write a line, with the number of lost ones before it, or lose it."""
        gap = f"\n{_gap_line(self.lost)}\n" if self.lost else ""
        try:
            self._target.write(gap + text)
            # A text stream keeps what it could not write, and says so only when it is flushed.
            self._target.flush()
        except (OSError, ValueError):
            # ValueError: the stream is closed.
            self.lost += 1
        else:
            self.lost = 0
        return len(text)

    def flush(self) -> None:
        """Accept a flush: each line is flushed when it is written."""


def _gap_line(lost: int) -> str:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    words = {"lines": lost, "event": "lines of this log could not be written", "level": "warning", "timestamp": now}
    return json.dumps(words)
