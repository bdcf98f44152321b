"""SessionService, as its proto specifies it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.api.session.v1 import session_pb2_grpc
from sandmesh.errors import InvalidArgument, SandmeshError, SessionNotFound
from sandmeshd.auth.principal import acting_user, user_key
from sandmeshd.broker.identity import SessionIdentity, identity
from sandmeshd.broker.leases import Leases
from sandmeshd.broker.records import SessionRecord, SessionRecords
from sandmeshd.broker.session_claims import SessionClaims
from sandmeshd.broker.settings import BrokerSettings

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]

_DEFAULT_PAGE, _LARGEST_PAGE = 100, 1000


class SessionServicer(session_pb2_grpc.SessionServiceServicer):
    """Serve sessions over leases; refusals are raised as exceptions of sandmesh.errors."""

    def __init__(self, settings: BrokerSettings, records: SessionRecords, leases: Leases) -> None:
        self._settings = settings
        self._records = records
        self._leases = leases
        self._cleanups: set[asyncio.Task[None]] = set()

    async def ConnectSession(self, request: pb.ConnectSessionRequest, context: Context) -> pb.ConnectSessionResponse:
        """Connect the session to the sandboxes that it requests."""
        self._check_slots(request.slots)
        await self._records.projects.check_user(request.user_id)
        who = identity(request.user_id, request.session_id)
        claims = SessionClaims(self._leases, self._records, who)
        done = False
        try:
            record, claimed = await claims.claim(_with_times(request), context.time_remaining())
            done = True
        finally:
            if not done:
                await self._clean_up(self._undo(claims))
        session = await self._session(record, claimed) if record.created else await self._session(record)
        return pb.ConnectSessionResponse(session=session, created_slots=claims.created_slots)

    def _check_slots(self, slots: Sequence[pb.SlotSpec]) -> None:
        if len(slots) > self._settings.slots:
            raise InvalidArgument(f"slots must be at most {self._settings.slots}", {"field": "slots"})
        names = [slot.slot or slot.spec.template for slot in slots]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            message = f"slot {twice!r} is requested twice; use a different slot for each sandbox"
            raise InvalidArgument(message, {"field": "slots"})

    async def _clean_up(self, undo: Any) -> None:
        # It goes on when the client disconnects; a client that waits gets the failure after it.
        task = asyncio.create_task(undo)
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)
        await asyncio.shield(task)

    async def _undo(self, claims: SessionClaims) -> None:
        try:
            async with asyncio.timeout(self._settings.release_timeout_seconds):
                await claims.undo()
        except (SandmeshError, TimeoutError) as error:
            # Their leases expire, which ends them too.
            log.warning("sandboxes of a failed request were not released", error=str(error))

    async def close(self) -> None:
        """Wait for releases in progress."""
        await asyncio.gather(*self._cleanups, return_exceptions=True)

    async def GetSession(self, request: pb.GetSessionRequest, context: Context) -> pb.GetSessionResponse:
        """Read a session."""
        record = await self._find(request.user_id, request.session_id)
        return pb.GetSessionResponse(session=await self._session(record))

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        """List a user's sessions by key."""
        if request.page_size > _LARGEST_PAGE:
            raise InvalidArgument(f"page_size is at most {_LARGEST_PAGE}", {"field": "page_size"})
        size = request.page_size or _DEFAULT_PAGE
        await self._records.projects.check_user(request.user_id)
        user_id = acting_user(request.user_id)
        records = await self._records.of_user(user_id, user_key(user_id), request.page_token, size + 1)
        sessions = await asyncio.gather(*(self._session(record) for record in records[:size]))
        token = records[size - 1].identity.session_key if len(records) > size else ""
        return pb.ListSessionsResponse(sessions=sessions, next_page_token=token)

    async def KeepSession(self, request: pb.KeepSessionRequest, context: Context) -> pb.KeepSessionResponse:
        """Renew all leases of a session."""
        record = await self._find(request.user_id, request.session_id, keep=True)
        sandboxes = await self._leases.of_session(record.identity.session_key)
        await self._leases.renew(sandboxes, request.ttl if request.HasField("ttl") else None)
        return pb.KeepSessionResponse(session=await self._session(record, sandboxes))

    async def ReleaseSession(self, request: pb.ReleaseSessionRequest, context: Context) -> pb.ReleaseSessionResponse:
        """End a session or some of its slots."""
        await self._records.projects.check_user(request.user_id)
        who = identity(request.user_id, request.session_id)
        sandboxes = await self._leases.of_session(who.session_key)
        wanted = [sandbox for sandbox in sandboxes if not request.slots or sandbox.slot in request.slots]
        released = await self._leases.release(wanted)
        if not request.slots:
            await self._records.close(who)
        return pb.ReleaseSessionResponse(sandbox_ids=released)

    async def _find(self, user_id: str, session_id: str, keep: bool = False) -> SessionRecord:
        await self._records.projects.check_user(user_id)
        record = await self._records.read(identity(user_id, session_id), keep)
        if record is None:
            facts = {"session_id": session_id}
            raise SessionNotFound(f"there is no session {session_id!r} of this user; connect it first", facts)
        return record

    async def _session(
        self, record: SessionRecord, sandboxes: Sequence[sandbox_pb2.Sandbox] | None = None
    ) -> pb.Session:
        who: SessionIdentity = record.identity
        if sandboxes is None:
            sandboxes = await self._leases.of_session(who.session_key)
        return pb.Session(
            user_id=who.user_id,
            session_id=who.session_id,
            session_key=who.session_key,
            sandboxes={sandbox.slot: sandbox for sandbox in sandboxes},
            create_time=record.create_time,
        )


def _with_times(request: pb.ConnectSessionRequest) -> Sequence[pb.SlotSpec]:
    """Return the slots with the request's own times where they have none."""
    for slot in request.slots:
        if request.HasField("ttl") and not slot.HasField("ttl"):
            slot.ttl.CopyFrom(request.ttl)
        if request.HasField("idle_timeout") and not slot.HasField("idle_timeout"):
            slot.idle_timeout.CopyFrom(request.idle_timeout)
        slot.on_idle = slot.on_idle or request.on_idle
    return request.slots
