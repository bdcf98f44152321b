"""Secrets in the store: names, hosts and times in plain, values encrypted."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from sandmesh.api.secret.v1 import secret_pb2 as pb
from sandmeshd.allocator.records.records import timestamp
from sandmeshd.auth.principal import user_key
from sandmeshd.auth.projects import Projects
from sandmeshd.store import Store

log = structlog.get_logger()

MOST_SECRETS = 1000
"""The most of one user."""


@dataclass(frozen=True)
class SecretRecord:
    """A secret as the store has it."""

    secret: pb.Secret
    sealed: bytes = field(repr=False)


class SecretRecords:
    """The secrets of a mesh."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.projects = Projects(store)
        """The projects of the secrets' users."""

    async def set(self, user_id: str, name: str, hosts: Sequence[str], sealed: bytes) -> SecretRecord | None:
        """Set a secret; None where its owner has as many as may be."""
        arguments = {
            "owner": user_key(user_id),
            "user": user_id,
            "name": name,
            "hosts": list(hosts),
            "sealed": b64encode(sealed).decode(),
            "most": MOST_SECRETS,
        }
        found = await self._store.run("secret_set", arguments)
        return _record(found[0]) if found else None

    async def find(self, user_id: str, name: str) -> SecretRecord | None:
        """Return a secret of an owner."""
        found = await self._store.run("secret_read", {"owner": user_key(user_id), "name": name})
        return _record(found[0]) if found else None

    async def of_user(self, user_id: str) -> list[SecretRecord]:
        """Return the secrets of an owner, by name."""
        return _sorted(await self._store.run("secret_list", {"owner": user_key(user_id)}))

    async def all(self) -> list[SecretRecord]:
        """Return the secrets of all owners, by owner, then by name."""
        return _sorted(await self._store.run("secret_list", {"owner": ""}))

    async def delete(self, user_id: str, name: str) -> bool:
        """Forget a secret; return whether it existed."""
        return bool(await self._store.run("secret_delete", {"owner": user_key(user_id), "name": name}))


def _sorted(found: Sequence[bytes]) -> list[SecretRecord]:
    records = [record for data in found if (record := _readable(data)) is not None]
    return sorted(records, key=lambda one: (one.secret.user_id, one.secret.name))


def _readable(data: bytes) -> SecretRecord | None:
    try:
        return _record(data)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("a stored secret cannot be read", error=type(error).__name__)
        return None


def _record(data: bytes) -> SecretRecord:
    plain = json.loads(data)
    secret = pb.Secret(
        name=plain["name"],
        hosts=plain["hosts"],
        user_id=plain["user"],
        create_time=timestamp(int(plain["created_us"])),
        update_time=timestamp(int(plain["updated_us"])),
    )
    return SecretRecord(secret, b64decode(plain["sealed"]))
