"""A target of the fuzz: what makes inputs, and what takes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import Random

Feed = Callable[[bytes], "str | Awaitable[str]"]
"""Takes an input; returns "ok", or the name of the error that the parser documents. Whatever it raises is a fault."""


class Fault(Exception):
    """What was under test did what it must never do."""


@dataclass(frozen=True)
class Target:
    """One parser, or a whole mesh."""

    name: str
    make: Callable[[Random], bytes]
    """Makes an input: the same for the same seed."""
    open: Callable[[], AbstractAsyncContextManager[Feed]]
    """Opens what takes inputs."""
    whole: bool = False
    """Whether it runs a mesh, which takes some seconds to start."""


def stream_of(seed: int, target: str, number: int) -> Random:
    """Return the randomness of one input, which depends on nothing else: any of them can be made again alone."""
    return Random(f"{seed}/{target}/{number}")


def cuts(data: bytes) -> list[bytes]:
    """Return an input in the pieces in which it arrives: the same for the same bytes."""
    random = Random(data)
    if len(data) < 2 or random.random() < 0.3:
        return [data]
    places = sorted({random.randrange(1, len(data)) for _ in range(random.randint(1, 6))})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
