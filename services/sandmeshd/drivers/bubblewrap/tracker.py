"""The running sandboxes of a driver, whose end is reported to watchers."""

from __future__ import annotations

import asyncio
import os

import structlog

from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.node.processes import Sandboxed
from sandmeshd.drivers.node.records import Folder

log = structlog.get_logger()


class Tracker(Watched):
    """Follows running sandboxes until they end."""

    def __init__(self) -> None:
        super().__init__()
        self._following: dict[str, asyncio.Task[None]] = {}

    def follows(self, folder: Folder) -> bool:
        """Return whether a sandbox is followed."""
        return folder.sandbox_id in self._following

    def follow(self, folder: Folder, processes: Sandboxed, lifetime: int | None = None) -> None:
        """Follow a sandbox until it ends, then close its processes' pidfds and `lifetime`, a descriptor."""
        task = asyncio.create_task(self._follow(folder, processes, lifetime))
        self._following[folder.sandbox_id] = task

    async def _follow(self, folder: Folder, processes: Sandboxed, lifetime: int | None) -> None:
        try:
            await processes.ended()
            log.info("a sandbox ended", sandbox_id=folder.sandbox_id, detail=folder.end_detail())
        finally:
            processes.close()
            if lifetime is not None:
                os.close(lifetime)
            self._following.pop(folder.sandbox_id, None)
        self.changed(folder.sandbox_id)

    async def settled(self, folder: Folder) -> None:
        """Return when a sandbox that was killed is no longer followed."""
        task = self._following.get(folder.sandbox_id)
        if task is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        """Stop following; the sandboxes live on."""
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
