"""A session that this program holds: it is renewed until it is let go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandmesh._client.connection import Connection
from sandmesh._client.messages import write_ttl
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import LeaseLost, NotFound, SandmeshError, TemplateNotFound, Unavailable
from sandmesh.sandbox.create_progress import telling
from sandmesh.sandbox.template_registration import explained, forget, introduce

# Renewals are at least so often, so that a clock that is off by hours does not end a session.
LONGEST_SECONDS = 60.0
SHORTEST_SECONDS = 0.2
RELEASE_SECONDS = 30.0

log = logging.getLogger("sandmesh")


@dataclass(frozen=True)
class Times:
    """How long sandboxes live without being renewed, and without being used, in seconds; None is the mesh's own."""

    ttl: float | None = None
    idle_timeout: float | None = None


class HeldSession:
    """One session on one mesh."""

    def __init__(self, connection: Connection, user_id: str, session_id: str, times: Times) -> None:
        self.user_id = user_id
        self.session_id = session_id
        self._connection = connection
        self._ttl = times.ttl
        self._idle_timeout = times.idle_timeout
        self._keeping: asyncio.Task[None] | None = None

    async def connect(self, slots: Sequence[session_pb2.SlotSpec], timeout: float) -> session_pb2.Session:
        """Give the session what it must have, and renew it from then on.

        Raises:
            SandmeshError: A sandbox could not be had; those that this request made are given back.
        """
        request = session_pb2.ConnectSessionRequest(
            user_id=self.user_id,
            session_id=self.session_id,
            slots=slots,
            ttl=write_ttl(self._ttl),
            idle_timeout=write_ttl(self._idle_timeout, "idle_timeout"),
        )
        answer = await self._connect(request, timeout)
        # Anew each time: it may have found that the session had ended, or be about to.
        await self.drop()
        self._keeping = asyncio.create_task(self._keep(answer.session), name="sandmesh-session")
        return answer.session

    async def _connect(
        self, request: session_pb2.ConnectSessionRequest, timeout: float
    ) -> session_pb2.ConnectSessionResponse:
        templates = [slot.spec.template for slot in request.slots]
        await introduce(self._connection, templates, timeout)
        with telling(self._connection, templates):
            try:
                return await self._connection.ask(lambda stubs: stubs.sessions.ConnectSession, request, timeout)
            except TemplateNotFound as error:
                # A mesh that was started anew does not know what the last one was told.
                if not forget(self._connection, templates):
                    raise explained(error, templates) from None
            await introduce(self._connection, templates, timeout)
            return await self._connection.ask(lambda stubs: stubs.sessions.ConnectSession, request, timeout)

    def renew_by(self, ttl: float) -> None:
        """Renew for so many seconds from now on."""
        self._ttl = ttl

    async def release(self, timeout: float) -> None:
        """End the session. A mesh that does not answer ends it when its lease runs out.

        Raises:
            SandmeshError: The mesh refused.
        """
        await self.drop()
        request = session_pb2.ReleaseSessionRequest(user_id=self.user_id, session_id=self.session_id)
        try:
            seconds = min(timeout, RELEASE_SECONDS)
            await self._connection.ask(lambda stubs: stubs.sessions.ReleaseSession, request, seconds)
        except NotFound:
            return
        except Unavailable as error:
            log.warning("a session could not be released; it ends when its lease does: %s", error)

    async def drop(self) -> None:
        """Stop renewing."""
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def _keep(self, session: session_pb2.Session) -> None:
        pause = self._pause(session)
        while True:
            await asyncio.sleep(pause)
            request = session_pb2.KeepSessionRequest(
                user_id=self.user_id, session_id=self.session_id, ttl=write_ttl(self._ttl)
            )
            try:
                kept = await self._connection.ask(lambda stubs: stubs.sessions.KeepSession, request, LONGEST_SECONDS)
            except (NotFound, LeaseLost) as error:
                log.warning("a session ended while it was in use: %s", error)
                return
            except SandmeshError as error:
                log.warning("a session could not be renewed and is tried again: %s", error)
            else:
                pause = self._pause(kept.session)

    def _pause(self, session: session_pb2.Session) -> float:
        if self._ttl is not None:
            left = self._ttl
        else:
            ends = [sandbox.lease.expire_time.ToNanoseconds() / 1e9 for sandbox in session.sandboxes.values()]
            left = min(ends, default=0.0) - time.time()
        return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, left / 3))
