"""Finds the sandboxes that earlier drivers left: the vendor lists the sessions, and each agent has its record."""

from __future__ import annotations

import asyncio

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.drivers.clouds.instances import last_words, read_kept
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.clouds.sessions import RentedSession, RentedSessions
from sandmeshd.drivers.clouds.vendor import Vendor

PAUSE_SECONDS = 0.5
UNKNOWN = "its start was left unfinished, its agent does not answer, or the mesh's secret is another one"

log = structlog.get_logger()


class Adoption:
    """Reads what is left of a mesh's sandboxes."""

    def __init__(self, vendor: Vendor, keys: MeshKeys, patience: float) -> None:
        self._vendor = vendor
        self._keys = keys
        self._patience = patience

    async def fill(self, sessions: RentedSessions) -> None:
        """Add all sessions of the mesh, and end those that no sandbox has.

        Raises:
            SandmeshError: The vendor does not answer, or refuses.
        """
        found = [session async for session in self._vendor.left()]
        await asyncio.gather(*(self._read(session) for session in found))
        for session in found:
            await self._add(session, sessions)

    async def _read(self, session: RentedSession) -> None:
        """Fill a session with its agent's record; one whose gateway does not answer stays unread, and lives on."""
        session.is_read = False
        if session.has_ended:
            return
        if not session.sandbox.endpoint:
            session.end(UNKNOWN)
            return
        session.sandbox.agent_token = self._keys.agent_token(session.session_id)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience
        while True:
            try:
                is_ours = await read_kept(session, self._keys)
            except SandmeshError as error:
                reason = error.message
            else:
                if not is_ours:
                    session.end(UNKNOWN)
                return
            if loop.time() >= end:
                await self._give_up(session, reason)
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _give_up(self, session: RentedSession, reason: str) -> None:
        words = await last_words(session)
        if words.is_of_instance:
            session.end(UNKNOWN)
        else:
            # It is read as soon as its agent can be reached.
            session.sandbox.state = pb.RUNTIME_STATE_RUNNING
        log.warning(
            "a sandbox's agent does not answer",
            sandbox_id=session.sandbox.sandbox_id,
            session=session.session_id,
            reason=words.text or reason,
            lives=not session.has_ended,
        )

    async def _add(self, session: RentedSession, sessions: RentedSessions) -> None:
        former = sessions.get(session.sandbox.sandbox_id)
        unwanted = session if not session.sandbox.sandbox_id and session.has_ended else None
        if former is not None and unwanted is None:
            unwanted = former if former.has_ended else session
        if unwanted is not session and session.sandbox.sandbox_id:
            sessions.add(session)
        if unwanted is not None:
            # Of an interrupted create: it is unknown, and it is billed.
            await self._vendor.end(unwanted)
