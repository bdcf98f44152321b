"""Tells a client when files change that it subscribed to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath

import structlog

from sandmesh import SandmeshError
from sandmesh.files import ChangeStream
from sandmeshd.facades.mcp.resources import WorkspaceResources, failing, path_of

log = structlog.get_logger()

Notify = Callable[[str], Awaitable[None]]
"""Tells the client that the file of a URI changed."""


class Subscriptions:
    """Watches files for one client."""

    def __init__(self, workspace: WorkspaceResources) -> None:
        self._workspace = workspace
        self._watching: dict[str, asyncio.Task[None]] = {}

    async def add(self, uri: str, notify: Notify) -> None:
        """Notify of every change of a file from now on; subscribing again changes nothing.

        Raises:
            MCPError: The directory that it is in is not there.
        """
        if uri in self._watching:
            return
        path = PurePosixPath(path_of(uri))
        box = await self._workspace.needed(uri)
        with failing(uri):
            # A file that is replaced is another file: its directory knows it by its name.
            changes = await box.fs.watch(str(path.parent))
        task = asyncio.create_task(_follow(changes, path.name, lambda: notify(uri)), name="sandmesh-mcp-watch")
        self._watching[uri] = task
        task.add_done_callback(lambda done: self._forget(uri, done))

    async def remove(self, uri: str) -> None:
        """Stop notifying of a file."""
        task = self._watching.pop(uri, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Stop notifying."""
        await asyncio.gather(*(self.remove(uri) for uri in list(self._watching)))

    def _forget(self, uri: str, task: asyncio.Task[None]) -> None:
        if self._watching.get(uri) is task:
            del self._watching[uri]


async def _follow(changes: ChangeStream, name: str, report: Callable[[], Awaitable[None]]) -> None:
    async with changes:
        try:
            while batch := await changes.take():
                if any(change.path in (name, "") for change in batch):
                    await report()
        except SandmeshError as error:
            log.info("a file is watched no more", reason=error.reason)
            await report()
