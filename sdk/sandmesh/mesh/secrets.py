"""The secrets that a mesh stores, and their records."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sandmesh.api.secret.v1 import secret_pb2 as pb
from sandmesh.errors import RuntimeUnavailable
from sandmesh.mesh.records import Record
from sandmesh.mesh.rpc import Rpc
from sandmesh.results import Listing
from sandmesh.shared.secret_rules import check_secret_name, check_secret_value, read_secret_hosts


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


class MeshSecretsAsync:
    """The secrets that a mesh stores: `mesh.secrets`. Values go in and never come out.

    A token of the scope user has those of its user. Administrators name a user by `user_id`; without one it is the
    mesh's own, which sandboxes of administrators may use.
    """

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def list(self) -> builtins.list[SecretInfo]:
        """Return the secrets without their values, by user, then by name."""
        response = await self._rpc.send(lambda stubs: stubs.secrets.ListSecrets, pb.ListSecretsRequest())
        return Listing(read_secret(secret) for secret in response.secrets)

    async def set(
        self, name: str, value: str, hosts: Sequence[str] | None = None, *, user_id: str = ""
    ) -> SecretChange:
        """Set the value of a secret, also for the next requests of the sandboxes that use it.

        `hosts` are those that may get it; None: those that it has. Sandboxes with other hosts get no value any more.

        Raises:
            InvalidArgument: The name, the value or a host does not fit, or a new secret has no hosts.
            PermissionDenied: It is another user's.
        """
        check_secret_name(name, "name")
        check_secret_value(value, "value")
        named = [] if hosts is None else [str(host) for host in read_secret_hosts(builtins.list(hosts), "hosts")]
        request = pb.SetSecretRequest(name=name, value=value, hosts=named, user_id=user_id)
        return read_secret_change(await self._rpc.send(lambda stubs: stubs.secrets.SetSecret, request))

    async def remove(self, name: str, *, user_id: str = "") -> builtins.list[str]:
        """Forget a secret, and return the ids of the running sandboxes whose requests get it no more.

        Raises:
            SecretNotFound: There is none of that name.
            RuntimeUnavailable: It is forgotten, but the node of a sandbox that uses it does not answer.
        """
        request = pb.DeleteSecretRequest(name=name, user_id=user_id)
        response = await self._rpc.send(lambda stubs: stubs.secrets.DeleteSecret, request)
        if response.outdated_sandbox_ids:
            kept = ", ".join(response.outdated_sandbox_ids)
            message = f"the secret {name} is forgotten, but the nodes of {kept} do not answer: release these sandboxes"
            raise RuntimeUnavailable(message, {"fix": f"release {kept}"})
        return builtins.list(response.sandbox_ids)


def read_secret(message: pb.Secret) -> SecretInfo:
    """Read a secret."""
    return SecretInfo(
        _message=message,
        name=message.name,
        hosts=tuple(message.hosts),
        user_id=message.user_id,
        created=message.create_time.ToDatetime(UTC),
        updated=message.update_time.ToDatetime(UTC),
    )


def read_secret_change(message: pb.SetSecretResponse) -> SecretChange:
    """Read what became of a secret that was set."""
    return SecretChange(
        secret=read_secret(message.secret),
        sandbox_ids=tuple(message.sandbox_ids),
        outdated_sandbox_ids=tuple(message.outdated_sandbox_ids),
        withdrawn_sandbox_ids=tuple(message.withdrawn_sandbox_ids),
    )
