"""Hides values in what hosts answer: one that repeats a request's headers would otherwise tell the sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterable

SHORTEST = 8
"""Shorter values occur by chance, and are not hidden."""


class Mask:
    """Replaces values by as many asterisks in bytes that come in pieces."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
        self._held = b""

    def whole(self, data: bytes, *, any_case: bool = False) -> bytes:
        """Return bytes with the values that are whole in them hidden, in letters of any case if need be."""
        for value in self._values:
            if any_case:
                data = re.sub(re.escape(value), b"*" * len(value), data, flags=re.IGNORECASE)
            else:
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


class FrameMask:
    """Hides values in what comes over a WebSocket; the end of a frame (RFC 6455, 5.2) waits for nothing."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._mask = Mask(values)
        self._head = bytearray()
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """Return what can be passed on."""
        passed = self._mask.feed(data)
        return passed + self._mask.rest() if self._ends_frame(data) else passed

    def _ends_frame(self, data: bytes) -> bool:
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            self._head.append(data[at])
            at += 1
            size = _frame_size(self._head)
            if size is not None:
                self._left = size
                self._head.clear()
        return not self._left and not self._head


def _frame_size(head: bytearray) -> int | None:
    """Return how many bytes follow the head of a frame, None while it is not whole."""
    if len(head) < 2:
        return None
    short, masked = head[1] & 0x7F, 4 if head[1] & 0x80 else 0
    wide = {126: 2, 127: 8}.get(short, 0)
    if len(head) < 2 + wide:
        return None
    return masked + (int.from_bytes(head[2:], "big") if wide else short)


def _overlap(data: bytes, value: bytes) -> int:
    """Return how many of the last bytes are the first of a value."""
    longest = min(len(value) - 1, len(data))
    return next((size for size in range(longest, 0, -1) if data.endswith(value[:size])), 0)
