"""Waiting for what tells nobody when it happens, and the plain commands behind a store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from sandmeshd.store import Store


async def until(check: Callable[[], bool | Awaitable[bool]], seconds: float = 15.0) -> None:
    """Return when the check holds; fail after a while."""
    async with asyncio.timeout(seconds):
        while True:
            answer = check()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)


def commands(store: Store) -> Any:
    """Give the client below a store, to bring about what only a crash would."""
    return cast("Any", store)._client
