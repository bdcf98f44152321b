"""Follows the sandboxes of a driver: notices their end, and tells who watches."""

from __future__ import annotations

import asyncio
import os

import structlog

from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.node.processes import Sandboxed
from sandmeshd.drivers.node.records import Folder

log = structlog.get_logger()


class Tracker(Watched):
    """The sandboxes that live, as this driver knows them."""

    def __init__(self) -> None:
        super().__init__()
        self._following: dict[str, asyncio.Task[None]] = {}

    def follows(self, folder: Folder) -> bool:
        """Say whether a sandbox is followed."""
        return folder.sandbox_id in self._following

    def follow(self, folder: Folder, processes: Sandboxed, held: int | None = None) -> None:
        """Follow a sandbox until it ends, then let go of its processes and of `held`, a descriptor."""
        task = asyncio.create_task(self._follow(folder, processes, held))
        self._following[folder.sandbox_id] = task

    async def _follow(self, folder: Folder, processes: Sandboxed, held: int | None) -> None:
        try:
            await processes.ended()
            log.info("a sandbox ended", sandbox_id=folder.sandbox_id, detail=folder.end_detail())
        finally:
            processes.close()
            if held is not None:
                os.close(held)
            self._following.pop(folder.sandbox_id, None)
        self.changed(folder.sandbox_id)

    async def settled(self, folder: Folder) -> None:
        """Return when a sandbox that was killed is no longer followed."""
        task = self._following.get(folder.sandbox_id)
        if task is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        """Follow nothing any more; the sandboxes themselves are left alone."""
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
