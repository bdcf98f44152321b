"""SecretService, as its proto specifies it."""

from __future__ import annotations

from typing import Any

import grpc
import structlog

from sandmesh.api.secret.v1 import secret_pb2 as pb
from sandmesh.api.secret.v1 import secret_pb2_grpc
from sandmesh.errors import InvalidArgument, PermissionDenied, SecretNotFound
from sandmesh.shared.secret_rules import check_secret_name, check_secret_value, read_secret_hosts
from sandmeshd.allocator.records.ownership import is_owned, not_found
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.secrets.rotation import Rotation
from sandmeshd.allocator.secrets.secret_records import MOST_SECRETS, SecretRecords
from sandmeshd.allocator.secrets.specs import SecretSpecs, acting_owner, secret_not_found
from sandmeshd.auth.principal import current_principal

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]

_LONGEST_USER = 255


class SecretServicer(secret_pb2_grpc.SecretServiceServicer):
    """Serve secrets; values go in and never come out. Refusals are raised as exceptions of sandmesh.errors."""

    def __init__(self, records: RecordStore, secrets: SecretRecords, rotation: Rotation, specs: SecretSpecs) -> None:
        self._records = records
        self._secrets = secrets
        self._rotation = rotation
        self._sealer = specs.sealer
        self.specs = specs
        """Resolves the secrets that claims name; no RPC does."""

    async def SetSecret(self, request: pb.SetSecretRequest, context: Context) -> pb.SetSecretResponse:
        """Store a value and put it in force."""
        owner = await self._owner(request.user_id)
        check_secret_name(request.name, "name")
        check_secret_value(request.value, "value")
        former = await self._secrets.find(owner, request.name)
        wanted = list(request.hosts) or (list(former.secret.hosts) if former else [])
        hosts = [str(host) for host in read_secret_hosts(wanted, "hosts")]
        sealed = self._sealer.seal(request.value, owner, hosts)
        record = await self._secrets.set(owner, request.name, hosts, sealed)
        if record is None:
            raise InvalidArgument(f"a user has at most {MOST_SECRETS} secrets: delete one", {"field": "name"})
        rotated = await self._rotation.everywhere(owner, request.name, hosts, request.value)
        log.info("a secret was set", name=request.name, hosts=hosts, sandboxes=len(rotated.changed))
        return pb.SetSecretResponse(
            secret=record.secret,
            sandbox_ids=rotated.changed,
            outdated_sandbox_ids=rotated.outdated,
            withdrawn_sandbox_ids=rotated.withdrawn,
        )

    async def ListSecrets(self, request: pb.ListSecretsRequest, context: Context) -> pb.ListSecretsResponse:
        """List secrets without their values."""
        principal = current_principal()
        is_user = principal.scope == "user" and not principal.project
        records = await (self._secrets.of_user(principal.user_id) if is_user else self._secrets.all())
        if principal.project:
            users = {record.secret.user_id for record in records} - {""}
            projects, _ = await self._secrets.projects.find(sorted(users))
            records = [record for record in records if projects.get(record.secret.user_id) == principal.project]
        return pb.ListSecretsResponse(secrets=[record.secret for record in records])

    async def DeleteSecret(self, request: pb.DeleteSecretRequest, context: Context) -> pb.DeleteSecretResponse:
        """Forget a secret."""
        owner = await self._owner(request.user_id)
        if not await self._secrets.delete(owner, request.name):
            raise secret_not_found(request.name)
        rotated = await self._rotation.everywhere(owner, request.name, [], "")
        log.info("a secret was deleted", name=request.name, sandboxes=len(rotated.withdrawn))
        return pb.DeleteSecretResponse(sandbox_ids=rotated.withdrawn, outdated_sandbox_ids=rotated.outdated)

    async def SealSecret(self, request: pb.SealSecretRequest, context: Context) -> pb.SealSecretResponse:
        """Encrypt a value for a create."""
        check_secret_value(request.value, "value")
        hosts = [str(host) for host in read_secret_hosts(list(request.hosts), "hosts")]
        return pb.SealSecretResponse(sealed=self._sealer.seal(request.value, acting_owner(), hosts))

    async def ChangeSandboxSecret(
        self, request: pb.ChangeSandboxSecretRequest, context: Context
    ) -> pb.ChangeSandboxSecretResponse:
        """Change the value that one sandbox's requests get."""
        if request.value:
            check_secret_value(request.value, "value")
        record = await self._records.read(request.sandbox_id)
        if record is None or not is_owned(record):
            raise not_found(request.sandbox_id)
        secrets = record.spec.secrets
        if request.variable not in secrets:
            has = ", ".join(sorted(secrets)) or "none"
            message = f"{request.sandbox_id} has no secret {request.variable!r}; it was made with: {has}"
            raise SecretNotFound(message, {"sandbox_id": request.sandbox_id})
        await self._rotation.change(record, request.variable, secrets[request.variable], request.value)
        log.info("a sandbox's secret was changed", sandbox_id=request.sandbox_id, variable=request.variable)
        return pb.ChangeSandboxSecretResponse()

    async def _owner(self, user_id: str) -> str:
        principal = current_principal()
        if len(user_id) > _LONGEST_USER:
            raise InvalidArgument(f"user_id has at most {_LONGEST_USER} characters", {"field": "user_id"})
        await self._secrets.projects.check_user(user_id)
        if principal.scope != "user" or principal.project:
            return user_id
        if user_id not in ("", principal.user_id):
            message = f"the token is for user {principal.user_id!r} only: name that user, or none"
            raise PermissionDenied(message, {"field": "user_id"})
        return principal.user_id
