"""The lease on a session that this program uses: it is renewed until it is released or dropped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandmesh._client.connection import Connection
from sandmesh._client.messages import write_on_idle, write_ttl
from sandmesh._client.secrets import sealed_slots
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import LeaseLost, NotFound, SandmeshError, TemplateNotFound, Unavailable
from sandmesh.sandbox.session.create_progress import log_progress
from sandmesh.sandbox.session.template_registration import forget_templates, register_templates, with_fix
from sandmesh.shared.traces.context import context_without_trace

# The longest pause between renewals: each costs the mesh as much as a call, however many sandboxes are idle.
LONGEST_SECONDS = 300.0
# The same where the mesh does not say how long its leases are: a clock that is off by hours does not end a session.
_UNSURE_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
SHORTEST_SECONDS = 0.2
RELEASE_SECONDS = 30.0

log = logging.getLogger("sandmesh")


@dataclass(frozen=True)
class Lifetimes:
    """The seconds that sandboxes live without renewal (`ttl`) and without use, and what is done then.

    None: the mesh's default.
    """

    ttl: float | None = None
    idle_timeout: float | None = None
    on_idle: str | None = None
    auto_resume: bool | None = None

    def check(self) -> None:
        """Check the values.

        Raises:
            InvalidArgument: One does not fit.
        """
        write_ttl(self.ttl)
        write_ttl(self.idle_timeout, "idle_timeout")
        write_on_idle(self.on_idle)


class SessionLease:
    """The lease on one session of one mesh."""

    def __init__(self, connection: Connection, user_id: str, session_id: str, lifetimes: Lifetimes) -> None:
        self.user_id = user_id
        self.session_id = session_id
        self._connection = connection
        self._lifetimes = lifetimes
        self._ttl = lifetimes.ttl
        self._renewals: asyncio.Task[None] | None = None

    async def connect(
        self, slots: Sequence[session_pb2.SlotSpec], timeout: float
    ) -> session_pb2.ConnectSessionResponse:
        """Connect the session with these slots, and renew it from then on; the response says which are new.

        Raises:
            SandmeshError: A sandbox could not be provided; those that this request created are released.
        """
        request = session_pb2.ConnectSessionRequest(
            user_id=self.user_id,
            session_id=self.session_id,
            slots=await sealed_slots(self._connection, slots, timeout),
            ttl=write_ttl(self._ttl),
            idle_timeout=write_ttl(self._lifetimes.idle_timeout, "idle_timeout"),
            on_idle=write_on_idle(self._lifetimes.on_idle),
        )
        for slot in request.slots:
            if self._lifetimes.auto_resume is not None:
                slot.auto_resume = self._lifetimes.auto_resume
        response = await self._connect(request, timeout)
        # A new task each time: the old one may have found that the session had ended, or be about to.
        await self.drop()
        self._renewals = asyncio.create_task(
            self._keep(response.session), name="sandmesh-session", context=context_without_trace()
        )
        return response

    async def _connect(
        self, request: session_pb2.ConnectSessionRequest, timeout: float
    ) -> session_pb2.ConnectSessionResponse:
        templates = [slot.spec.template for slot in request.slots]
        await register_templates(self._connection, templates, timeout)
        with log_progress(self._connection, templates):
            try:
                return await self._connection.ask(lambda stubs: stubs.sessions.ConnectSession, request, timeout)
            except TemplateNotFound as error:
                # A restarted mesh has lost the templates that were registered on it.
                if not forget_templates(self._connection, templates):
                    raise with_fix(error, templates) from None
            await register_templates(self._connection, templates, timeout)
            return await self._connection.ask(lambda stubs: stubs.sessions.ConnectSession, request, timeout)

    def renew_by(self, ttl: float) -> None:
        """Renew by `ttl` seconds from now on."""
        self._ttl = ttl

    async def release(self, timeout: float) -> None:
        """End the session; if the mesh does not respond, the session ends when its lease expires.

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
            log.warning("a session could not be released; it ends when its lease expires: %s", error)

    async def drop(self) -> None:
        """Stop renewing."""
        renewals, self._renewals = self._renewals, None
        if renewals is not None:
            renewals.cancel()
            await asyncio.wait([renewals])

    async def _keep(self, session: session_pb2.Session) -> None:
        pause = renewal_pause(session, self._ttl)
        while True:
            await asyncio.sleep(pause)
            request = session_pb2.KeepSessionRequest(
                user_id=self.user_id, session_id=self.session_id, ttl=write_ttl(self._ttl)
            )
            try:
                kept = await self._connection.ask(lambda stubs: stubs.sessions.KeepSession, request, _ANSWER_SECONDS)
            except (NotFound, LeaseLost) as error:
                log.warning("a session ended while it was in use: %s", error)
                return
            except SandmeshError as error:
                log.warning("a session could not be renewed; retrying: %s", error)
            else:
                pause = renewal_pause(kept.session, self._ttl)


def renewal_pause(session: session_pb2.Session, ttl: float | None = None) -> float:
    """Return the seconds until leases of `ttl` seconds (None: as the mesh says) are due: a third of what they last."""
    leases = [sandbox.lease for sandbox in session.sandboxes.values()]
    if ttl is not None:
        longest, left = LONGEST_SECONDS, ttl
    elif all(lease.HasField("ttl") for lease in leases):
        longest, left = LONGEST_SECONDS, min((lease.ttl.ToNanoseconds() / 1e9 for lease in leases), default=0.0)
    else:
        ends = [lease.expire_time.ToNanoseconds() / 1e9 for lease in leases]
        longest, left = _UNSURE_SECONDS, min(ends) - time.time()
    return min(longest, max(SHORTEST_SECONDS, left / 3))
