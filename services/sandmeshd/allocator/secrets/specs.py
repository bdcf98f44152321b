"""Secrets of a spec: checked, with their values, and with placeholders in the environment."""

from __future__ import annotations

import base64
import secrets as random
from collections.abc import Sequence

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, PermissionDenied, SecretNotFound
from sandmesh.shared.hosts import NamedHost, read_host
from sandmesh.shared.secret_rules import MOST_SECRETS, check_secret_name, is_within, read_secret_hosts
from sandmeshd.allocator.secrets.secret_records import SecretRecord, SecretRecords
from sandmeshd.auth.principal import ANONYMOUS, current_principal
from sandmeshd.auth.sealer import Sealer

_PLACEHOLDER_BYTES = 20


class SecretSpecs:
    """Resolves the secrets that creates name."""

    def __init__(self, records: SecretRecords, sealer: Sealer) -> None:
        self._records = records
        self.sealer = sealer

    async def resolved(self, spec: pb.SandboxSpec, user_id: str) -> pb.SandboxSpec:
        """Return a user's spec with the sealed values of its secrets, and placeholders in its environment.

        Raises:
            InvalidArgument: A variable, a host or a sealed value does not fit; nothing was created.
            SecretNotFound: There is no stored secret of a name.
        """
        if not spec.secrets:
            return spec
        if len(spec.secrets) > MOST_SECRETS:
            raise InvalidArgument(f"spec.secrets must be at most {MOST_SECRETS}", {"field": "spec.secrets"})
        result = pb.SandboxSpec()
        result.CopyFrom(spec)
        for variable, secret in spec.secrets.items():
            field = f"spec.secrets[{variable}]"
            check_secret_name(variable, "spec.secrets")
            if variable in spec.environment:
                message = f"{variable} is both a secret and an environment variable: drop one"
                raise InvalidArgument(message, {"field": field})
            made = await self._one(field, secret, user_id)
            result.secrets[variable].CopyFrom(made)
            result.environment[variable] = made.placeholder
        return result

    async def _one(self, field: str, secret: pb.SandboxSecret, user_id: str) -> pb.SandboxSecret:
        if bool(secret.name) == bool(secret.sealed):
            raise InvalidArgument(f"{field} needs a value or the name of a stored secret: one", {"field": field})
        hosts = read_secret_hosts(list(secret.hosts), f"{field}.hosts")
        names = [str(host) for host in hosts]
        made = pb.SandboxSecret(hosts=names, name=secret.name, placeholder=_placeholder())
        if secret.name:
            found = await self._find(secret.name, user_id)
            check_hosts_within(hosts, found.secret.hosts, f"the secret {secret.name}")
            made.user_id = found.secret.user_id
            value = self.sealer.unseal(found.sealed, found.secret.user_id, found.secret.hosts)
            made.sealed = self.sealer.seal(value, made.user_id, names)
        else:
            made.user_id = acting_owner()
            self.sealer.unseal(secret.sealed, made.user_id, names)
            made.sealed = secret.sealed
        return made

    async def _find(self, name: str, user_id: str) -> SecretRecord:
        principal = current_principal()
        owners = [principal.user_id] if principal.scope == "user" else [user_id, ""]
        if principal.project:
            owners = [user_id]
        for owner in owners:
            if not owner.startswith(ANONYMOUS) and (found := await self._records.find(owner, name)):
                return found
        raise secret_not_found(name)


def acting_owner() -> str:
    """Return whose the values are that the current principal seals; empty for the mesh's.

    Raises:
        PermissionDenied: It administers a project: the values are neither a user's nor the mesh's.
    """
    principal = current_principal()
    if principal.project:
        fix = "store the value as a secret of the user (`sandmesh secret set NAME --user USER`), and name it"
        raise PermissionDenied(f"a project's administrator gives sandboxes no values: {fix}", {"fix": fix})
    return principal.user_id if principal.scope == "user" else ""


def secret_not_found(name: str) -> SecretNotFound:
    """Return the error of a stored secret that does not exist."""
    message = f"there is no secret {name!r}: store it by `sandmesh secret set {name}`, or give its value to the sandbox"
    return SecretNotFound(message, {"name": name})


def check_hosts_within(hosts: Sequence[NamedHost], allowed: Sequence[str], what: str) -> None:
    """Check that hosts are among those of a stored secret.

    Raises:
        InvalidArgument: One is not.
    """
    wider = [read_host(host) for host in allowed]
    for host in hosts:
        if not any(one.port == host.port and is_within(host, one) for one in wider):
            message = f"{what} is for {', '.join(allowed)}, not for {host}: name only these, or set it with more hosts"
            raise InvalidArgument(message, {"field": "hosts"})


def _placeholder() -> str:
    return "sandmesh_secret_" + base64.b32encode(random.token_bytes(_PLACEHOLDER_BYTES)).decode().lower()
