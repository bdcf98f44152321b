"""Watches of directories: changes as E2B's clients read them, as they come or when they are asked for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final

from sandmesh import SandboxAsync
from sandmesh.errors import SandmeshError
from sandmesh.files import ChangeStream
from sandmeshd.facades.e2b.envd.entries import read_entry

_TYPES: Final = {
    "created": "EVENT_TYPE_CREATE",
    "modified": "EVENT_TYPE_WRITE",
    "attributes": "EVENT_TYPE_CHMOD",
    "deleted": "EVENT_TYPE_REMOVE",
    "moved_out": "EVENT_TYPE_RENAME",
    "moved_in": "EVENT_TYPE_CREATE",
}
_UNFINISHED: Final = re.compile(r"\.sandmesh-[0-9a-f]+$|#\d+$")
"""Names that files have only while they are written: they get their own when they are whole."""

_MOST_EVENTS: Final = 10_000


async def changes(
    box: SandboxAsync, path: str, stream: ChangeStream, *, entries: bool
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the changes below a path."""
    async for change in stream:
        kind = _TYPES.get(change.kind)
        if kind is None or not change.path or _UNFINISHED.match(change.path.rpartition("/")[2]):
            continue
        event: dict[str, Any] = {"name": change.path, "type": kind}
        if entries:
            # What is gone by now has no entry.
            with suppress(OSError):
                event["entry"] = await read_entry(box, f"{path}/{change.path}")
        yield event


class Watcher:
    """Collects the changes below a path until they are asked for; the oldest go where nobody asks."""

    def __init__(self, box: SandboxAsync, path: str, stream: ChangeStream, *, entries: bool) -> None:
        self.ended = False
        self._stream = stream
        self._events: list[dict[str, Any]] = []
        self._task = asyncio.create_task(self._collect(changes(box, path, stream, entries=entries)))

    def take(self) -> list[dict[str, Any]]:
        """Return the changes since the last time."""
        taken, self._events = self._events, []
        return taken

    async def close(self) -> None:
        """End the watch."""
        self._task.cancel()
        await asyncio.wait([self._task])
        with suppress(SandmeshError, OSError):
            await self._stream.aclose()

    async def _collect(self, events: AsyncGenerator[dict[str, Any]]) -> None:
        try:
            with suppress(SandmeshError, OSError):
                async for event in events:
                    self._events.append(event)
                    del self._events[:-_MOST_EVENTS]
        finally:
            self.ended = True
