"""What changed of a driver's sandboxes, for those who watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager


class Changes:
    """Ids of sandboxes that changed, each once however often it did: a slow watcher costs no memory."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._any = asyncio.Event()

    def add(self, sandbox_id: str) -> None:
        """Note a change."""
        self._ids[sandbox_id] = None
        self._any.set()

    async def follow(self) -> AsyncGenerator[str]:
        """Yield each id that changed since it was last yielded."""
        while True:
            await self._any.wait()
            for sandbox_id in list(self._ids):
                del self._ids[sandbox_id]
                yield sandbox_id
            if not self._ids:
                self._any.clear()


class Watched:
    """Tells watchers which sandboxes changed."""

    def __init__(self) -> None:
        self._watchers: set[Changes] = set()

    @contextmanager
    def watching(self) -> Generator[Changes]:
        """Yield the changes from now on."""
        changes = Changes()
        self._watchers.add(changes)
        try:
            yield changes
        finally:
            self._watchers.discard(changes)

    def changed(self, sandbox_id: str) -> None:
        """Notify the subscribers that a sandbox changed."""
        for changes in self._watchers:
            changes.add(sandbox_id)
