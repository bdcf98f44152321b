"""Pauses between attempts."""

from __future__ import annotations

import random
from collections.abc import Iterator


def back_off() -> Iterator[float]:
    """Give the seconds to wait before each further attempt: doubling from 50 ms to 2 s, spread by a half."""
    # Of its own: the numbers that a program draws after random.seed() stay the same.
    chance, delay = random.Random(), 0.05  # noqa: S311 - spreads clients, hides nothing
    while True:
        yield delay * chance.uniform(0.5, 1.0)
        delay = min(delay * 2, 2.0)
