"""Exponential backoff."""

from __future__ import annotations

import random
from collections.abc import Iterator

# A separate generator: what a program draws after random.seed() stays the same. Making one reads 2.5 KB of entropy.
_JITTER = random.Random()  # noqa: S311 - jitter, not cryptography


def back_off() -> Iterator[float]:
    """Yield the seconds to wait before each retry: doubling from 50 ms to 2 s, with a jitter of one half."""
    delay = 0.05
    while True:
        yield delay * _JITTER.uniform(0.5, 1.0)
        delay = min(delay * 2, 2.0)
