"""The records of stored secrets, and their messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sandmesh.api.secret.v1 import secret_pb2
from sandmesh.mesh.records import Record


@dataclass(frozen=True, kw_only=True)
class SecretInfo(Record):
    """A secret that a mesh stores; its value is never returned."""

    name: str

    hosts: tuple[str, ...]
    """The hosts that may get it."""

    user_id: str
    """Whose it is; empty for the mesh's."""

    created: datetime

    updated: datetime
    """When its value or its hosts were set last."""


@dataclass(frozen=True)
class SecretChange:
    """A secret that was set, and the running sandboxes that use it."""

    secret: SecretInfo

    sandbox_ids: tuple[str, ...]
    """Those whose next requests get the new value."""

    outdated_sandbox_ids: tuple[str, ...]
    """Those whose node did not answer: they have the former value."""

    withdrawn_sandbox_ids: tuple[str, ...]
    """Those with hosts that it is no longer for: their requests get no value."""


def read_secret(message: secret_pb2.Secret) -> SecretInfo:
    """Read a secret."""
    return SecretInfo(
        _message=message,
        name=message.name,
        hosts=tuple(message.hosts),
        user_id=message.user_id,
        created=message.create_time.ToDatetime(UTC),
        updated=message.update_time.ToDatetime(UTC),
    )


def read_secret_change(message: secret_pb2.SetSecretResponse) -> SecretChange:
    """Read what became of a secret that was set."""
    return SecretChange(
        secret=read_secret(message.secret),
        sandbox_ids=tuple(message.sandbox_ids),
        outdated_sandbox_ids=tuple(message.outdated_sandbox_ids),
        withdrawn_sandbox_ids=tuple(message.withdrawn_sandbox_ids),
    )
