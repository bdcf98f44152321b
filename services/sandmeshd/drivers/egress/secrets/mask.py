"""Hides values in what hosts answer: one that repeats a request's headers would otherwise tell the sandbox."""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 8
"""Shorter values occur by chance, and are not hidden."""


class Mask:
    """Replaces values by as many asterisks in bytes that come in pieces."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
        self._held = b""

    def whole(self, data: bytes) -> bytes:
        """Return bytes with the values that are whole in them hidden."""
        for value in self._values:
            data = data.replace(value, b"*" * len(value))
        return data

    def feed(self, data: bytes) -> bytes:
        """Return what can be passed on; an end that a value may begin with waits for the next piece."""
        data = self.whole(self._held + data)
        kept = max((_overlap(data, value) for value in self._values), default=0)
        self._held = data[len(data) - kept :]
        return data[: len(data) - kept]

    def rest(self) -> bytes:
        """Return what still waits, at the end."""
        held, self._held = self._held, b""
        return held


def _overlap(data: bytes, value: bytes) -> int:
    """Return how many of the last bytes are the first of a value."""
    longest = min(len(value) - 1, len(data))
    return next((size for size in range(longest, 0, -1) if data.endswith(value[:size])), 0)
