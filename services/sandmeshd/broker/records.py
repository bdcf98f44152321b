"""Records of sessions: their owner and creation time. Their sandboxes are the allocator's."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from sandmeshd.auth.projects import Projects
from sandmeshd.broker.identity import SessionIdentity
from sandmeshd.store import Store


@dataclass(frozen=True)
class SessionRecord:
    """A session's record: whether this request `created` it, and when it was opened by the store's clock."""

    identity: SessionIdentity
    created_us: int
    created: bool = False
    opened_us: int = 0

    @property
    def create_time(self) -> Timestamp:
        """When it was created."""
        return Timestamp(seconds=self.created_us // 1_000_000, nanos=self.created_us % 1_000_000 * 1000)


class SessionRecords:
    """The records of all sessions of a mesh."""

    def __init__(self, store: Store, retention_seconds: int) -> None:
        self._store = store
        self._retention_seconds = retention_seconds
        self.projects = Projects(store)
        """The projects of the sessions' users."""

    async def open(self, who: SessionIdentity) -> SessionRecord:
        """Create the record or find it; `created` tells which."""
        arguments = {
            "session": who.session_key,
            "user": who.user_id,
            "name": who.session_id,
            "user_key": who.user_key,
            "keep_seconds": self._retention_seconds,
        }
        created, created_us, opened_us = await self._store.run("session_open", arguments)
        return SessionRecord(who, int(created_us), bool(created), int(opened_us))

    async def read(self, who: SessionIdentity, keep: bool = False) -> SessionRecord | None:
        """Read the record, or None where it does not exist; `keep` extends its retention."""
        keep_seconds = self._retention_seconds if keep else 0
        arguments = {"session": who.session_key, "user_key": who.user_key, "keep_seconds": keep_seconds}
        found = await self._store.run("session_keep", arguments)
        return SessionRecord(who, int(found[2])) if found else None

    async def close(self, who: SessionIdentity) -> None:
        """Delete the record, unless the session holds sandboxes again."""
        await self._store.run("session_close", {"session": who.session_key, "user_key": who.user_key})

    async def of_user(self, user_id: str, user_key: str, after: str, limit: int) -> list[SessionRecord]:
        """Read a user's records, by key."""
        arguments = {"user_key": user_key, "after": after, "limit": limit}
        flat = await self._store.run("session_list", arguments)
        rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return [SessionRecord(SessionIdentity(user_id, name.decode()), int(created)) for _, name, created in rows]
