"""Sessions' own records: who they belong to and when they were made. Their sandboxes are the allocator's."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from sandmeshd.broker.identity import Identity
from sandmeshd.store import Store


@dataclass(frozen=True)
class SessionRecord:
    """One session as the store has it: `made` just now or before, opened at a time of the store's clock."""

    identity: Identity
    created_us: int
    made: bool = False
    opened_us: int = 0

    @property
    def create_time(self) -> Timestamp:
        """When it was made."""
        return Timestamp(seconds=self.created_us // 1_000_000, nanos=self.created_us % 1_000_000 * 1000)


class SessionRecords:
    """The records of all sessions of a mesh."""

    def __init__(self, store: Store, retention_seconds: int) -> None:
        self._store = store
        self._retention_seconds = retention_seconds

    async def open(self, who: Identity) -> SessionRecord:
        """Make the record or find it; `made` says which."""
        words = {
            "session": who.session_key,
            "user": who.user_id,
            "name": who.session_id,
            "user_key": who.user_key,
            "keep_seconds": self._retention_seconds,
        }
        made, created, opened = await self._store.run("session_open", words)
        return SessionRecord(who, int(created), bool(made), int(opened))

    async def read(self, who: Identity, keep: bool = False) -> SessionRecord | None:
        """Read the record, or None where there is none; `keep` lets it stay for another while."""
        kept = self._retention_seconds if keep else 0
        words = {"session": who.session_key, "user_key": who.user_key, "keep_seconds": kept}
        found = await self._store.run("session_keep", words)
        return SessionRecord(who, int(found[2])) if found else None

    async def close(self, who: Identity) -> None:
        """Remove the record, unless the session holds sandboxes again."""
        await self._store.run("session_close", {"session": who.session_key, "user_key": who.user_key})

    async def of_user(self, user_id: str, user_key: str, after: str, limit: int) -> list[SessionRecord]:
        """Read a user's records, by key."""
        words = {"user_key": user_key, "after": after, "limit": limit}
        flat = await self._store.run("session_list", words)
        rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return [SessionRecord(Identity(user_id, name.decode()), int(created)) for _, name, created in rows]
