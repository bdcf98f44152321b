"""Exponential backoff."""

from __future__ import annotations

import random
from collections.abc import Iterator


def back_off() -> Iterator[float]:
    """Yield the seconds to wait before each retry: doubling from 50 ms to 2 s, with a jitter of one half."""
    # A generator of its own: what a program draws after random.seed() stays the same.
    generator, delay = random.Random(), 0.05  # noqa: S311 - jitter, not cryptography
    while True:
        yield delay * generator.uniform(0.5, 1.0)
        delay = min(delay * 2, 2.0)
