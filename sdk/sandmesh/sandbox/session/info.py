"""Sessions of a mesh: their owners and their sandboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from sandmesh._client.connection import Connection, acquire, release
from sandmesh._client.messages import read_name
from sandmesh._client.sync import run
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import SandmeshError
from sandmesh.results import Listing

PAGE = 1000
DEFAULT_USER = "default"
HEALTH_SECONDS = 5.0

R = TypeVar("R")
Ids = tuple[str, str]


@dataclass(frozen=True)
class SessionInfo:
    """A session: its owner, its name, its creation time, and its sandboxes' ids by type."""

    user_id: str
    session_id: str
    session_key: str
    sandboxes: Mapping[str, str]
    created: datetime


@dataclass(frozen=True)
class BoxSession:
    """The session of a box: `box.session`, as it was connected."""

    user_id: str
    session_id: str
    is_new: bool
    """Whether this connect created the sandbox: variables and processes of an earlier one are gone. Its files are there
    where workspaces are saved."""


async def list_sessions(connection: Connection, user_id: str, timeout: float) -> list[SessionInfo]:
    """List a user's sessions, sorted by key."""
    found = Listing[SessionInfo]()
    request = session_pb2.ListSessionsRequest(user_id=user_id, page_size=PAGE)
    while True:
        page = await connection.ask(lambda stubs: stubs.sessions.ListSessions, request, timeout)
        found.extend(read_session(session) for session in page.sessions)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def get_session(connection: Connection, user_id: str, session_id: str, timeout: float) -> SessionInfo:
    """Return one session.

    Raises:
        SessionNotFound: The user has no session of that name.
    """
    request = session_pb2.GetSessionRequest(user_id=user_id, session_id=session_id)
    answer = await connection.ask(lambda stubs: stubs.sessions.GetSession, request, timeout)
    return read_session(answer.session)


def read_session(session: session_pb2.Session) -> SessionInfo:
    """Convert a session's record."""
    return SessionInfo(
        user_id=session.user_id,
        session_id=session.session_id,
        session_key=session.session_key,
        sandboxes=MappingProxyType({slot: one.sandbox_id for slot, one in sorted(session.sandboxes.items())}),
        created=session.create_time.ToDatetime(tzinfo=UTC),
    )


class SessionQueries:
    """Requests to a mesh that need no started service."""

    def __init__(self, address: tuple[str | None, str | None], timeout: float, ca_cert: str | Path | None) -> None:
        self._address = address
        self._timeout = timeout
        self._ca_cert = ca_cert

    async def health(self) -> bool:
        """Return whether the mesh responds."""
        try:
            await self._ask_capacity(min(self._timeout, HEALTH_SECONDS))
        except SandmeshError:
            return False
        return True

    def list_sessions(self, user_id: str | None = None) -> list[SessionInfo]:
        """List a user's sessions by key, including those of other clients; the service need not be started."""
        return run("SandboxService.list_sessions_async", self.list_sessions_async(user_id))

    async def list_sessions_async(self, user_id: str | None = None) -> list[SessionInfo]:
        """List a user's sessions by key, including those of other clients; the service need not be started."""
        owner = read_user(user_id)
        return await self._ask(lambda connection: list_sessions(connection, owner, self._timeout))

    def get_session(self, session_id: str, user_id: str | None = None) -> SessionInfo:
        """Return a session with its sandboxes' ids; the service need not be started for it.

        Raises:
            SessionNotFound: The user has no session of that name.
        """
        return run("SandboxService.get_session_async", self.get_session_async(session_id, user_id))

    async def get_session_async(self, session_id: str, user_id: str | None = None) -> SessionInfo:
        """Return a session with its sandboxes' ids; the service need not be started for it.

        Raises:
            SessionNotFound: The user has no session of that name.
        """
        owner, name = read_ids(session_id, user_id)
        return await self._ask(lambda connection: get_session(connection, owner, name, self._timeout))

    async def _ask_capacity(self, timeout: float) -> None:
        request = sandbox_pb2.GetCapacityRequest()
        await self._ask(lambda mesh: mesh.ask(lambda stubs: stubs.sandboxes.GetCapacity, request, timeout), timeout)

    async def _ask(self, request: Callable[[Connection], Awaitable[R]], timeout: float | None = None) -> R:
        connection = await acquire(*self._address, timeout or self._timeout, self._ca_cert)
        try:
            return await request(connection)
        finally:
            await release(connection)


def read_user(user_id: str | None) -> str:
    """Check a user's id, by default the default user's."""
    return read_name("user_id", DEFAULT_USER if user_id is None else user_id)


def read_ids(session_id: str, user_id: str | None) -> Ids:
    """Check the ids of a user and a session."""
    return read_user(user_id), read_name("session_id", session_id)
