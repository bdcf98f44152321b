"""Passes over a node whose starts fail, for a while that grows."""

from __future__ import annotations

import time

_LONGEST_SECONDS = 60.0


class Breaker:
    """Open after a number of failures in a row; closed again by the first success."""

    def __init__(self, failures: int, seconds: float) -> None:
        self._allowed = failures
        self._seconds = seconds
        self._failures = 0
        self._until = 0.0
        self.reason = ""
        """Why the last start failed."""

    @property
    def left(self) -> float:
        """For how many seconds it is passed over from now on."""
        return max(0.0, self._until - time.monotonic())

    @property
    def is_open(self) -> bool:
        """Whether the node is to be passed over now; when the time is over one start shows whether it works again."""
        return time.monotonic() < self._until

    def failed(self, reason: str = "") -> None:
        """Count a failure."""
        self.reason = reason
        self._failures += 1
        beyond = self._failures - self._allowed
        if beyond >= 0:
            self._until = time.monotonic() + min(self._seconds * 2 ** min(beyond, 10), _LONGEST_SECONDS)

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures, self._until, self.reason = 0, 0.0, ""
