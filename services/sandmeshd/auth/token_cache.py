"""Tokens that were shown and checked recently, and the news of those that are revoked."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import structlog
from google.protobuf.duration_pb2 import Duration

from sandmesh.api.token.v1 import token_pb2 as pb
from sandmesh.api.token.v1 import token_pb2_grpc
from sandmesh.errors import SandmeshError, Unauthenticated
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.principal import SERVICE, Principal, Scope, acting_for
from sandmeshd.runtime.retry import CALL_SECONDS, retry_until_available

log = structlog.get_logger()

PREFIXES = ("smesh_", "e2b_")
WAIT_SECONDS = 20
RETRY_SECONDS = 0.3
# More than a gateway's clients show at the same time; the oldest are asked about again.
MOST = 10_000


@dataclass(eq=False)
class Grant:
    """What a token allows, until it ends; `held` are the time limits of the RPCs under way.

    `expires` is a time of the clock, `checked` one that no change of the clock moves.
    """

    principal: Principal
    token_id: str = ""
    expires: float = float("inf")
    checked: float = float("-inf")
    over: str = "expired"
    held: set[asyncio.Timeout] = field(default_factory=set[asyncio.Timeout])


class KnownTokens:
    """Asks the service of tokens about what clients show, seldom; drops what is revoked immediately."""

    def __init__(
        self,
        stub: token_pb2_grpc.TokenServiceAsyncStub,
        keep_seconds: float,
        timeout: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stub = stub
        self._keep_seconds = keep_seconds
        self._timeout = timeout
        self._clock = clock
        self._grants: dict[bytes, Grant] = {}
        self._news = 0
        self._used = asyncio.Event()
        self.on_revoked: list[Callable[[set[str]], None]] = []
        """Called with the ids of tokens that were revoked."""

    async def check(self, secret: str) -> Grant:
        """Return the grant of a token; where the store must be asked and is away, wait for it for some seconds.

        Raises:
            Unauthenticated: It is unknown, expired or revoked; the message says which.
            Unavailable: The service of tokens does not answer.
        """
        if not secret.startswith(PREFIXES):
            raise _over("invalid")
        grant = self.known(secret)
        if grant is None:
            request = pb.CheckTokenRequest(secret=secret)
            grant = await retry_until_available(partial(self._ask, request, _digest(secret)), CALL_SECONDS)
        return grant

    async def check_id(self, token_id: str) -> Grant:
        """Return the grant of a token by its id, for what was made with it.

        Raises:
            Unauthenticated: It is unknown, expired or revoked; the message says which.
            Unavailable: The service of tokens does not answer.
        """
        key = f"id {token_id}".encode()
        grant = self._fresh(key)
        if grant is None:
            request = pb.CheckTokenRequest(token_id=token_id)
            grant = await retry_until_available(partial(self._ask, request, key), CALL_SECONDS)
        return grant

    def known(self, secret: str) -> Grant | None:
        """Return the grant of a recently checked token."""
        return self._fresh(_digest(secret))

    def _fresh(self, key: bytes) -> Grant | None:
        grant = self._grants.get(key)
        if grant is None or time.monotonic() >= grant.checked + self._keep_seconds:
            return None
        return grant if self._clock() < grant.expires else None

    async def _ask(self, request: pb.CheckTokenRequest, key: bytes) -> Grant:
        while True:
            news = self._news
            with acting_for(SERVICE), translated():
                answer = await self._stub.CheckToken(request, timeout=self._timeout)
            # A revocation that was told meanwhile may be younger than the answer.
            if news == self._news:
                return self._keep(answer.token, key)

    def _keep(self, token: pb.Token, key: bytes) -> Grant:
        grant = self._grants.pop(key, None)
        if grant is None:
            grant = Grant(_principal(token), token.token_id)
        if token.HasField("expire_time"):
            grant.expires = token.expire_time.ToMicroseconds() / 1e6
        grant.checked = time.monotonic()
        self._grants[key] = grant
        if len(self._grants) > MOST:
            del self._grants[next(iter(self._grants))]
        self._used.set()
        return grant

    @asynccontextmanager
    async def holding(self, grant: Grant) -> AsyncGenerator[None]:
        """End what is inside when the token ends.

        Raises:
            Unauthenticated: It ended; the message says how.
        """
        left = None if grant.expires == float("inf") else grant.expires - self._clock()
        limit = asyncio.timeout(left)
        try:
            async with limit:
                grant.held.add(limit)
                try:
                    yield
                finally:
                    grant.held.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _over(grant.over) from None

    async def watch(self) -> None:
        """Hear of revocations until cancelled, once there is a token to hear of."""
        revision = 0
        while True:
            await self._used.wait()
            request = pb.AwaitRevocationRequest(after_revision=revision, wait=Duration(seconds=WAIT_SECONDS))
            try:
                with translated():
                    answer = await self._stub.AwaitRevocation(request, timeout=WAIT_SECONDS + self._timeout)
            except SandmeshError as error:
                log.info("revocations of tokens are not heard of", error=str(error))
                self._doubt()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            revision = answer.revision
            self._revoke(set(answer.token_ids))

    def heard_of(self, response: bytes) -> None:
        """Look up the token of a RevokeTokenResponse at its next use; what is under way ends with the news of it."""
        token_id = pb.RevokeTokenResponse.FromString(response).token.token_id
        self._news += 1
        for grant in self._grants.values():
            if grant.token_id == token_id:
                grant.checked = float("-inf")

    def _doubt(self) -> None:
        # Nothing is told of a revocation now: every token is asked about at its next use.
        for grant in self._grants.values():
            grant.checked = float("-inf")

    def _revoke(self, token_ids: set[str]) -> None:
        self._news += 1
        for key, grant in list(self._grants.items()):
            if grant.token_id in token_ids:
                del self._grants[key]
                _end(grant)
        for heard in self.on_revoked:
            heard(token_ids)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _end(grant: Grant) -> None:
    grant.over = "revoked"
    now = asyncio.get_running_loop().time()
    for limit in grant.held:
        limit.reschedule(now)


def _principal(token: pb.Token) -> Principal:
    everything = token.scope in (pb.SCOPE_ADMIN, pb.SCOPE_READ_ONLY) and not token.user_id
    scope: Scope = "admin" if everything else "user"
    read_only = token.scope == pb.SCOPE_READ_ONLY
    return Principal(
        scope, token.user_id, token.token_id, token.private_network, read_only, token.sandbox_id, token.project
    )


def _over(kind: str) -> Unauthenticated:
    said = {"invalid": "is not valid", "expired": "has expired", "revoked": "was revoked"}[kind]
    return Unauthenticated(f"the token {said}: get another one from the mesh's administrator", {"token": kind})
