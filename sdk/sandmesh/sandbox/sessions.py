"""Sessions as the mesh has them: whose they are, and which sandboxes they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from sandmesh._client.connection import Connection
from sandmesh.api.session.v1 import session_pb2

PAGE = 1000


@dataclass(frozen=True)
class SessionInfo:
    """A session: who owns it, its name, when it was made, and its sandboxes' ids by type."""

    user_id: str
    session_id: str
    session_key: str
    sandboxes: Mapping[str, str]
    created: datetime


async def list_sessions(connection: Connection, user_id: str, timeout: float) -> list[SessionInfo]:
    """Give a user's sessions, by key."""
    found: list[SessionInfo] = []
    request = session_pb2.ListSessionsRequest(user_id=user_id, page_size=PAGE)
    while True:
        page = await connection.ask(lambda stubs: stubs.sessions.ListSessions, request, timeout)
        found += [read_session(session) for session in page.sessions]
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def get_session(connection: Connection, user_id: str, session_id: str, timeout: float) -> SessionInfo:
    """Give one session.

    Raises:
        SessionNotFound: The user has none of that name.
    """
    request = session_pb2.GetSessionRequest(user_id=user_id, session_id=session_id)
    answer = await connection.ask(lambda stubs: stubs.sessions.GetSession, request, timeout)
    return read_session(answer.session)


def read_session(session: session_pb2.Session) -> SessionInfo:
    """Read a session's record."""
    return SessionInfo(
        user_id=session.user_id,
        session_id=session.session_id,
        session_key=session.session_key,
        sandboxes=MappingProxyType({slot: one.sandbox_id for slot, one in sorted(session.sandboxes.items())}),
        created=session.create_time.ToDatetime(tzinfo=UTC),
    )
