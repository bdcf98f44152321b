"""Tokens' records in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.token.v1 import token_pb2 as pb
from sandmesh.errors import SandboxNotFound
from sandmeshd.auth.token_secret import Secret
from sandmeshd.store import Store

KEPT_US = 30 * 86400 * 1_000_000
"""How long a token that ended is remembered, to say so."""

NOTICE = "access-revoked"


@dataclass(frozen=True)
class TokenRecord:
    """One token as the store has it; times are microseconds of the store's clock, 0 where there is none."""

    token: pb.Token
    digest: str
    now_us: int
    expires_us: int
    revoked_us: int

    @property
    def over(self) -> str:
        """How it ended: revoked, expired, or empty while it is in force."""
        if self.revoked_us:
            return "revoked"
        return "expired" if 0 < self.expires_us <= self.now_us else ""


class TokenRecords:
    """The records of all tokens of a mesh."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, secret: Secret, token: pb.Token, ttl_us: int) -> TokenRecord | None:
        """Make a record, or give None where a token in force has the name.

        Raises:
            SandboxNotFound: It is for a sandbox that does not exist.
        """
        words = {
            "id": secret.token_id,
            "name": token.name,
            "scope": pb.Scope.Name(token.scope),
            "user": token.user_id,
            "private": token.private_network,
            "sandbox": token.sandbox_id,
            "digest": secret.digest(),
            "ttl_us": ttl_us,
            "kept_us": KEPT_US,
        }
        answer = await self._store.run("access_create", words)
        if answer == [b"none"]:
            raise SandboxNotFound(f"there is no sandbox {token.sandbox_id}", {"sandbox_id": token.sandbox_id})
        return _record(answer) if answer else None

    async def read(self, token_id: str, note_use: bool = False) -> TokenRecord | None:
        """Read a record, or None where there is none; `note_use` keeps the minute."""
        answer = await self._store.run("access_read", {"id": token_id, "note_use": note_use})
        return _record(answer) if answer else None

    async def all(self) -> list[TokenRecord]:
        """Read all of them."""
        return [_record(answer) for answer in await self._store.run("access_list", {})]

    async def revoke(self, token_id: str) -> TokenRecord | None:
        """Revoke one, or give None where there is none."""
        answer = await self._store.run("access_revoke", {"id": token_id, "kept_us": KEPT_US})
        return _record(answer) if answer else None

    async def revoked_after(self, revision: int) -> tuple[int, list[str]]:
        """Return the revision that the store is at, and the tokens that were revoked since the given one."""
        current, *ids = await self._store.run("access_revoked", {"after": revision})
        return int(current), [one.decode() for one in ids]

    def expect_revocation(self) -> AbstractContextManager[asyncio.Event]:
        """Return an event that the next revocation sets."""
        return self._store.notifications.subscribe(NOTICE)


def _record(answer: Sequence[bytes]) -> TokenRecord:
    now, *pairs = answer
    fields = {pairs[i].decode(): pairs[i + 1].decode() for i in range(0, len(pairs), 2)}
    times = {name: int(fields.get(f"{name}_us", "0")) for name in ("created", "expires", "used", "revoked")}
    token = pb.Token(
        token_id=fields["id"],
        name=fields["name"],
        scope=pb.Scope.Value(fields["scope"]),
        user_id=fields["user"],
        private_network=fields.get("private") == "1",
        sandbox_id=fields.get("sandbox", ""),
        create_time=_time(times["created"]),
        expire_time=_time(times["expires"]),
        last_use_time=_time(times["used"]),
        revoke_time=_time(times["revoked"]),
    )
    return TokenRecord(token, fields["digest"], int(now), times["expires"], times["revoked"])


def _time(microseconds: int) -> Timestamp | None:
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000) if microseconds else None
