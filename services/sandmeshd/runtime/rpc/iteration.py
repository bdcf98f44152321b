"""Iterations that end with who began them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def ended(iterator: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """Close an iteration with the block: one that is left open is closed by the event loop, in no order."""
    try:
        yield iterator
    finally:
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()
