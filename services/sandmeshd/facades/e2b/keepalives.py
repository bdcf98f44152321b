"""Streams that are not silent for long, however long nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def with_pauses(items: AsyncIterator[T], seconds: float) -> AsyncGenerator[T | None]:
    """Yield items, and None after each so many seconds without one."""
    following: asyncio.Task[T | None] | None = None
    try:
        while True:
            following = following or asyncio.create_task(_next(items))
            await asyncio.wait([following], timeout=seconds)
            if not following.done():
                yield None
                continue
            item, following = following.result(), None
            if item is None:
                return
            yield item
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait([following])


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)
