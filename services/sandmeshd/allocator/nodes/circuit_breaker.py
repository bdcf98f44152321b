"""A circuit breaker for nodes whose starts fail, with a timeout that grows."""

from __future__ import annotations

import time

_LONGEST_SECONDS = 60.0


class CircuitBreaker:
    """Is open after a number of failures in a row, and closed by the first success."""

    def __init__(self, failures: int, seconds: float) -> None:
        self._allowed = failures
        self._seconds = seconds
        self._failures = 0
        self._until = 0.0
        self.reason = ""
        """Why the last start failed."""

    @property
    def left(self) -> float:
        """For how many seconds it stays open."""
        return max(0.0, self._until - time.monotonic())

    @property
    def is_open(self) -> bool:
        """Whether the node is skipped now; after the timeout one start shows whether it works again."""
        return time.monotonic() < self._until

    def failed(self, reason: str = "") -> None:
        """Count a failure."""
        self.reason = reason
        self._failures += 1
        beyond = self._failures - self._allowed
        if beyond >= 0:
            self._until = time.monotonic() + min(self._seconds * 2 ** min(beyond, 10), _LONGEST_SECONDS)

    def succeeded(self) -> None:
        """Reset."""
        self._failures, self._until, self.reason = 0, 0.0, ""
