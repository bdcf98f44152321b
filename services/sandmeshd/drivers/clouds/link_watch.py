"""Notices the end of sandboxes: by a link to each agent, and by asking the vendor where one cannot be made again."""

from __future__ import annotations

import asyncio

import structlog

from sandmesh.errors import SandmeshError
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.clouds.instances import answers, last_words, read_kept
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.clouds.sessions import RentedSession
from sandmeshd.drivers.clouds.vendor import Vendor

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
REPLACED = "its instance ended, and the vendor does not say how"

log = structlog.get_logger()


class LinkWatcher:
    """Follows the sandboxes of one driver, a task each."""

    def __init__(self, vendor: Vendor, keys: MeshKeys, changes: Watched, lost_seconds: float) -> None:
        self._vendor = vendor
        self._keys = keys
        self._changes = changes
        self._lost_seconds = lost_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self, session: RentedSession) -> None:
        """Follow a sandbox until it ends or is dropped."""
        self._tasks[session.session_id] = asyncio.create_task(self._follow(session))

    async def drop(self, session: RentedSession) -> None:
        """Follow a sandbox no longer."""
        task = self._tasks.pop(session.session_id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Follow none any longer."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def _follow(self, session: RentedSession) -> None:
        while not session.has_ended:
            try:
                if not session.is_read:
                    await self._read(session)
                    continue
                async with open_link(session.sandbox, None) as link:
                    await link.closed
                    continue
            except SandmeshError as error:
                log.info("a link to a sandbox is lost", sandbox_id=session.sandbox.sandbox_id, reason=error.message)
            detail = await self._confirmed(session)
            if detail:
                session.end(detail)
                self._changes.changed(session.sandbox.sandbox_id)

    async def _read(self, session: RentedSession) -> None:
        """Read the record of a session whose gateway did not answer when it was adopted.

        Raises:
            SandmeshError: It does not answer yet.
        """
        if not await read_kept(session, self._keys):
            session.end("its agent's record is not this mesh's")
        self._changes.changed(session.sandbox.sandbox_id)

    async def _confirmed(self, session: RentedSession) -> str:
        """Return how a sandbox ended whose agent does not answer, empty as soon as it answers again."""
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self._lost_seconds, FIRST_PAUSE
        while True:
            try:
                detail = await self._vendor.why_ended(session)
            except SandmeshError as error:
                # Where the vendor says nothing, nothing is said of the sandbox.
                log.warning("a sandbox does not answer, nor does its cloud", reason=error.message)
                end, detail = loop.time() + self._lost_seconds, ""
            if detail:
                return detail
            if await answers(session):
                return ""
            if loop.time() >= end:
                words = await last_words(session)
                if words.is_of_instance:
                    return words.text or REPLACED
                # While the way there is down, nothing is known of the sandbox.
                log.warning("a sandbox cannot be reached", session=session.session_id, reason=words.text)
                end = loop.time() + self._lost_seconds
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
