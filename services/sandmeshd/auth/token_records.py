"""Tokens' records in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.token.v1 import token_pb2 as pb
from sandmesh.errors import InvalidArgument, PermissionDenied, SandboxNotFound, SandmeshError
from sandmeshd.auth.token_secret import TokenSecret
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
    gone_project: str = ""
    """The project that it is for where that does not exist any more."""

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

    async def create(self, secret: TokenSecret, token: pb.Token, ttl_us: int, within: str = "") -> TokenRecord | None:
        """Create a record; return None where a token in force has the name. `within` limits it to a project.

        Raises:
            SandboxNotFound: It is for a sandbox that does not exist, or of another project.
            InvalidArgument: It is for a project that does not exist.
            PermissionDenied: It is for a user of another project.
        """
        words = {
            "id": secret.token_id,
            "name": token.name,
            "scope": pb.Scope.Name(token.scope),
            "user": token.user_id,
            "private": token.private_network,
            "sandbox": token.sandbox_id,
            "project": token.project,
            "within": within,
            "digest": secret.digest(),
            "ttl_us": ttl_us,
            "kept_us": KEPT_US,
        }
        answer = await self._store.run("access_create", words)
        if len(answer) == 1:
            raise _impossible(answer[0], token, within)
        return _record(answer) if answer else None

    async def read(self, token_id: str, note_use: bool = False) -> TokenRecord | None:
        """Read a record, or None where there is none; `note_use` keeps the minute."""
        answer = await self._store.run("access_read", {"id": token_id, "note_use": note_use})
        return _record(answer) if answer else None

    async def all(self, within: str = "") -> list[TokenRecord]:
        """Read all of them, or those for users and sandboxes of a project."""
        return [_record(answer) for answer in await self._store.run("access_list", {"within": within})]

    async def revoke(self, token_id: str, within: str = "") -> TokenRecord | None:
        """Revoke one; return None where there is none, or none within a project."""
        answer = await self._store.run("access_revoke", {"id": token_id, "kept_us": KEPT_US, "within": within})
        return _record(answer) if answer else None

    async def revoked_after(self, revision: int) -> tuple[int, list[str]]:
        """Return the revision that the store is at, and the tokens that were revoked since the given one."""
        current, *ids = await self._store.run("access_revoked", {"after": revision})
        return int(current), [identifier.decode() for identifier in ids]

    def expect_revocation(self) -> AbstractContextManager[asyncio.Event]:
        """Return an event that the next revocation sets."""
        return self._store.notifications.subscribe(NOTICE)


def _impossible(reason: bytes, token: pb.Token, within: str) -> SandmeshError:
    if reason == b"no sandbox":
        return SandboxNotFound(f"there is no sandbox {token.sandbox_id}", {"sandbox_id": token.sandbox_id})
    if reason == b"no project":
        message = f"there is no project {token.project}: assign a user to it, or set its quota, first"
        return InvalidArgument(message, {"field": "project"})
    message = f"the token is for the project {within}, which {token.user_id!r} does not belong to"
    return PermissionDenied(message, {"field": "user_id"})


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
        project=fields.get("project", ""),
        create_time=_time(times["created"]),
        expire_time=_time(times["expires"]),
        last_use_time=_time(times["used"]),
        revoke_time=_time(times["revoked"]),
    )
    return TokenRecord(token, fields["digest"], int(now), times["expires"], times["revoked"], fields.get("gone", ""))


def _time(microseconds: int) -> Timestamp | None:
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000) if microseconds else None
