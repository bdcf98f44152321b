"""The principal of an RPC between services, as metadata that only services of the mesh can write.

It is a JSON Web Token (https://www.rfc-editor.org/rfc/rfc7519) signed with the mesh's secret: `aud` is the method,
`exp` a few seconds ahead, `jti` taken once by each service, so that what is overheard neither fits another method
nor works a second time.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import jwt

from sandmesh.errors import InvalidArgument, Unauthenticated
from sandmeshd.auth.principal import Principal, acting_for, current_principal
from sandmeshd.runtime.rpc.interceptors import Around, Context
from sandmeshd.runtime.rpc.outgoing_metadata import metadata_interceptors

KEY = "sandmesh-identity"
LASTS_SECONDS = 30.0
SKEW_SECONDS = 10.0
SHORTEST = 32
# What tells that a server lives says nothing of what is in it.
OPEN_METHODS = ("/grpc.health.v1.Health/",)

_FIX = "give all services of the mesh the same secret (--secret-file or SANDMESH_MESH_SECRET) and set their clocks"


class Identities:
    """Writes and reads principals for one service of a mesh."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._seen: set[str] = set()
        self._order: deque[tuple[float, str]] = deque()

    def sign(self, method: str, principal: Principal) -> str:
        """Write who an RPC is for, for one use of one method."""
        claims = {
            "aud": method,
            "exp": time.time() + LASTS_SECONDS,
            "jti": secrets.token_hex(12),
            "scope": principal.scope,
            "user": principal.user_id,
            "token": principal.token_id,
            "private": principal.private_network,
            "sandbox": principal.sandbox_id,
            "project": principal.project,
            "read_only": principal.read_only,
            "door": principal.door,
        }
        return jwt.encode(claims, self._secret, "HS256")

    def verify(self, method: str, signed: str) -> Principal:
        """Read who an RPC is for.

        Raises:
            Unauthenticated: It is missing, forged, too old, for another method, or was taken before.
        """
        if not signed:
            raise _refused("the request has no signed identity")
        try:
            claims = self._decode(method, signed)
        except jwt.InvalidTokenError as error:
            raise _refused(f"the request's identity is not valid ({error})") from None
        self._take(str(claims["jti"]))
        scope, user_id, token_id, private = (claims[name] for name in ("scope", "user", "token", "private"))
        # A service of an earlier version names no read_only, and refuses what changes anything by itself.
        read_only = bool(claims.get("read_only"))
        door = claims.get("door") is True
        return Principal(scope, user_id, token_id, private, read_only, claims["sandbox"], claims["project"], door)

    def _decode(self, method: str, signed: str) -> dict[str, Any]:
        required = {"require": ["aud", "exp", "jti", "scope", "user", "token", "private", "sandbox", "project"]}
        return jwt.decode(
            signed, self._secret, ["HS256"], options=cast("Any", required), audience=method, leeway=SKEW_SECONDS
        )

    def _take(self, number: str) -> None:
        now = time.monotonic()
        while self._order and self._order[0][0] < now:
            self._seen.discard(self._order.popleft()[1])
        if number in self._seen:
            raise _refused("the request's identity was used before")
        self._seen.add(number)
        self._order.append((now + LASTS_SECONDS + 2 * SKEW_SECONDS, number))


def _refused(what: str) -> Unauthenticated:
    return Unauthenticated(f"{what}: {_FIX}", {"token": "invalid"})


def identity_required(identities: Identities) -> Around:
    """Serve only RPCs that a service of the mesh sent, each for the principal that it names."""

    @asynccontextmanager
    async def check(method: str, context: Context) -> AsyncGenerator[None]:
        if method.startswith(OPEN_METHODS):
            yield
            return
        value = dict(context.invocation_metadata() or ()).get(KEY, "")
        with acting_for(identities.verify(method, value if isinstance(value, str) else value.decode())):
            yield

    return check


def signing_interceptors(identities: Identities) -> list[grpc.aio.ClientInterceptor]:
    """Return interceptors that sign a channel's RPCs, each for the principal of the current request."""
    return metadata_interceptors(lambda method: [(KEY, identities.sign(method, current_principal()))])


def read_secret(path: Path) -> str:
    """Read the secret that an operator put into a file.

    Raises:
        InvalidArgument: It cannot be read, is open to others, or is too short.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidArgument(f"{path} is open to others: chmod 600 {path}", {"file": str(path)})
        secret = path.read_text().strip()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}", {"file": str(path)}) from None
    if len(secret) < SHORTEST:
        fix = f"openssl rand -hex 32 > {path}"
        raise InvalidArgument(f"the secret in {path} is shorter than {SHORTEST} characters: {fix}", {"fix": fix})
    return secret


def kept_secret(path: Path) -> str:
    """Return the secret that services of one state directory share, made when the first of them asks.

    Raises:
        InvalidArgument: The file is cut, as by a full disk or a restore that was not finished.
    """
    try:
        return _whole(path)
    except FileNotFoundError:
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        os.link(fresh, path)
    except FileExistsError:
        pass  # another service was first; its secret counts
    finally:
        fresh.unlink()
    return _whole(path)


def _whole(path: Path) -> str:
    secret = path.read_text()
    if len(secret.strip()) < SHORTEST:
        fix = "restore it from the backup, or remove it: a new one is made, and stored secrets must be set again"
        message = f"the mesh's secret in {path} is cut to {len(secret.strip())} characters: {fix}"
        raise InvalidArgument(message, {"file": str(path), "fix": fix})
    return secret
