"""TokenService, as its proto specifies it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import structlog

from sandmesh.api.token.v1 import token_pb2 as pb
from sandmesh.api.token.v1 import token_pb2_grpc
from sandmesh.errors import AlreadyExists, InvalidArgument, PermissionDenied, TokenNotFound, Unauthenticated
from sandmeshd.auth.principal import Principal, current_principal
from sandmeshd.auth.token_records import TokenRecord, TokenRecords
from sandmeshd.auth.token_secret import new_e2b_secret, new_secret, read_secret

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]

# A notice may be lost: how often a waiting request looks all the same.
POLL_SECONDS = 0.5
_LONGEST_NAME, _LONGEST_USER = 63, 255
_SCOPES = {
    pb.SCOPE_USER: "USER",
    pb.SCOPE_ADMIN: "ADMIN",
    pb.SCOPE_READ_ONLY: "READ_ONLY",
    pb.SCOPE_SANDBOX: "SANDBOX",
    pb.SCOPE_PROJECT_ADMIN: "PROJECT_ADMIN",
}
_NOBODYS = (pb.SCOPE_ADMIN, pb.SCOPE_SANDBOX, pb.SCOPE_PROJECT_ADMIN)


class TokenServicer(token_pb2_grpc.TokenServiceServicer):
    """Serves tokens; refusals are raised as exceptions of sandmesh.errors."""

    def __init__(self, records: TokenRecords) -> None:
        self._records = records

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        """Make a token; its secret is in this answer and nowhere else."""
        _check_admin()
        token = pb.Token(
            name=request.name,
            scope=request.scope,
            user_id=request.user_id,
            private_network=request.private_network,
            sandbox_id=request.sandbox_id,
            project=request.project,
        )
        _check(token)
        _check_within_project(token)
        ttl_us = request.ttl.ToMicroseconds() if request.HasField("ttl") else 0
        if ttl_us < 0 or (request.HasField("ttl") and ttl_us == 0):
            raise InvalidArgument("ttl is more than 0; leave it out for a token without an end", {"field": "ttl"})
        secret = new_e2b_secret() if request.form == pb.FORM_E2B else new_secret()
        record = await self._records.create(secret, token, ttl_us, current_principal().project)
        if record is None:
            message = f"a token named {token.name!r} is in force: revoke it or choose another name"
            raise AlreadyExists(message, {"name": token.name})
        log.info("a token was created", token_id=secret.token_id, name=token.name, by=current_principal().token_id)
        return pb.CreateTokenResponse(token=record.token, secret=secret.text())

    async def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        """List tokens by name, then id."""
        _check_admin()
        within = current_principal().project
        records = [record for record in await self._records.all(within) if request.include_ended or not record.over]
        tokens = sorted((record.token for record in records), key=lambda token: (token.name, token.token_id))
        return pb.ListTokensResponse(tokens=tokens)

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        """End a token."""
        _check_admin()
        record = await self._records.revoke(request.token_id, current_principal().project)
        if record is None:
            raise TokenNotFound(f"there is no token {request.token_id}", {"token_id": request.token_id})
        log.info("a token was revoked", token_id=request.token_id, by=current_principal().token_id)
        return pb.RevokeTokenResponse(token=record.token)

    async def GetPrincipal(self, request: pb.GetPrincipalRequest, context: Context) -> pb.GetPrincipalResponse:
        """Return who the caller is."""
        principal = current_principal()
        return pb.GetPrincipalResponse(
            scope=_scope_of(principal),
            user_id=principal.user_id,
            token_id=principal.token_id,
            sandbox_id=principal.sandbox_id,
            project=principal.project,
        )

    async def CheckToken(self, request: pb.CheckTokenRequest, context: Context) -> pb.CheckTokenResponse:
        """Return the principal of a token's secret, or of the token that an id names."""
        secret = read_secret(request.secret)
        token_id = secret.token_id if secret else "" if request.secret else request.token_id
        record = await self._records.read(token_id) if token_id else None
        if record is None or (secret is not None and not secret.fits(record.digest)):
            raise _refused("invalid", "is not valid")
        if record.over:
            raise _refused(record.over, f"{record.token.name!r} was revoked" if record.revoked_us else "has expired")
        if record.gone_project:
            raise _refused("invalid", f"{record.token.name!r} is for the project {record.gone_project}, which is gone")
        if secret is not None and _is_stale(record):
            await self._records.read(token_id, note_use=True)
        return pb.CheckTokenResponse(token=record.token)

    async def AwaitRevocation(self, request: pb.AwaitRevocationRequest, context: Context) -> pb.AwaitRevocationResponse:
        """Answer at the next revocation, or after the wait."""
        ends = asyncio.get_running_loop().time() + request.wait.ToNanoseconds() / 1e9
        with self._records.expect_revocation() as woken:
            while True:
                woken.clear()
                revision, token_ids = await self._records.revoked_after(request.after_revision)
                left = ends - asyncio.get_running_loop().time()
                if revision != request.after_revision or left <= 0:
                    return pb.AwaitRevocationResponse(revision=revision, token_ids=token_ids)
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), min(left, POLL_SECONDS))


def _scope_of(principal: Principal) -> pb.Scope.ValueType:
    if principal.read_only:
        return pb.SCOPE_READ_ONLY
    if principal.sandbox_id:
        return pb.SCOPE_SANDBOX
    if principal.project:
        return pb.SCOPE_PROJECT_ADMIN
    return pb.SCOPE_USER if principal.scope == "user" else pb.SCOPE_ADMIN


def _check_admin() -> None:
    principal = current_principal()
    if principal.scope == "user" and not principal.project:
        raise PermissionDenied("tokens are an administrator's: use a token of the scope admin, or the mesh's own user")


def _check(token: pb.Token) -> None:
    if len(token.name) > _LONGEST_NAME:
        raise InvalidArgument(f"name has at most {_LONGEST_NAME} characters", {"field": "name"})
    if token.scope not in _SCOPES:
        message = f"scope is {', '.join(_SCOPES.values())}: there is no other"
        raise InvalidArgument(message, {"field": "scope"})
    misplaced = token.scope in (_NOBODYS if token.user_id else (pb.SCOPE_USER,))
    if misplaced or len(token.user_id) > _LONGEST_USER:
        message = (
            "a token of the scope user names its user_id, of at most 255 characters; one of the scopes admin, "
            "project-admin and sandbox none"
        )
        raise InvalidArgument(message, {"field": "user_id"})
    if bool(token.sandbox_id) != (token.scope == pb.SCOPE_SANDBOX):
        raise InvalidArgument(
            "a token of the scope sandbox names its sandbox_id, any other none", {"field": "sandbox_id"}
        )
    if bool(token.project) != (token.scope == pb.SCOPE_PROJECT_ADMIN):
        message = "a token of the scope project-admin names its project, any other none"
        raise InvalidArgument(message, {"field": "project"})
    if token.private_network and token.scope not in (pb.SCOPE_USER, pb.SCOPE_PROJECT_ADMIN):
        message = (
            "private_network is for the scopes USER and PROJECT_ADMIN: an administrator's grants may name private "
            "hosts in any case, and who only reads makes none"
        )
        raise InvalidArgument(message, {"field": "private_network"})


def _check_within_project(token: pb.Token) -> None:
    principal = current_principal()
    if not principal.project:
        return
    everything = token.scope == pb.SCOPE_READ_ONLY and not token.user_id
    if everything or token.scope in (pb.SCOPE_ADMIN, pb.SCOPE_PROJECT_ADMIN):
        message = f"the token is for the project {principal.project}: it makes tokens for its users and sandboxes only"
        raise PermissionDenied(message, {"field": "scope"})
    if token.private_network and not principal.private_network:
        message = "the token has no private networks, and gives none: ask the mesh's administrator"
        raise PermissionDenied(message, {"field": "private_network"})


def _refused(kind: str, said: str) -> Unauthenticated:
    return Unauthenticated(f"the token {said}: get another one from the mesh's administrator", {"token": kind})


def _is_stale(record: TokenRecord) -> bool:
    # Once a minute is enough to see which tokens are unused.
    last = record.token.last_use_time.ToMicroseconds() if record.token.HasField("last_use_time") else 0
    return record.now_us - last > 60_000_000
