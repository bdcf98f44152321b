"""Who may come in, and for whom what they ask is done."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Container, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import ServiceDescriptor

from sandmesh.api.options.v1 import options_pb2
from sandmesh.errors import PermissionDenied, SandmeshError, Unauthenticated
from sandmeshd.auth.doors import door_proof, split_proof
from sandmeshd.auth.principal import ADMIN, Principal, acting_for
from sandmeshd.auth.service_identity import OPEN_METHODS
from sandmeshd.auth.token_cache import PREFIXES, Grant, KnownTokens
from sandmeshd.gateway.door.addresses import token_required
from sandmeshd.gateway.door.forward import is_public
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.runtime.addresses import peer_network
from sandmeshd.runtime.rpc.interceptors import Around, Context

LIMITED: Final = "limited"
BURST: Final = 30
"""The wrong tokens of an address that are looked up without delay."""
SECONDS_EACH: Final = 2.0
"""After which one more is looked up."""
MOST: Final = 10_000
"""The addresses that are remembered; the one that failed longest ago is forgotten first."""


class Failures:
    """Counts wrong tokens by address; a unix socket's clients are the mesh's own, and loopback's may be a proxy's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clear: OrderedDict[str, float] = OrderedDict()

    def check(self, peer: str) -> None:
        """Check that another token of a peer may be looked up.

        Raises:
            Unauthenticated: Its address has shown too many wrong ones; the message says how long to wait.
        """
        address = source(peer)
        wait = self._clear.get(address, 0.0) - self._clock() - (BURST - 1) * SECONDS_EACH
        if wait > 0:
            message = f"too many wrong tokens came from {address}: try again in {wait:.0f} s with one that is in force"
            raise Unauthenticated(message, {"token": LIMITED})

    def note(self, peer: str) -> None:
        """Note that a peer has shown a wrong token."""
        address = source(peer)
        if address:
            clear = max(self._clear.pop(address, 0.0), self._clock()) + SECONDS_EACH
            self._clear[address] = clear
            if len(self._clear) > MOST:
                self._clear.popitem(last=False)


def source(peer: str) -> str:
    """Return the address of a gRPC peer, of an IPv6 one its network of 64 bits; empty where none is limited."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return peer_network(rest.rpartition(":")[0].strip("[]"))


_TO_USERS = (options_pb2.ACCESS_OWNER, options_pb2.ACCESS_ANYONE)
_TO_PROJECTS = (*_TO_USERS, options_pb2.ACCESS_PROJECT)
_UNLIMITED = Grant(ADMIN)

Refused = Callable[[str, str, Principal | None, SandmeshError], None]
"""Receives the method, the peer, who it was where a token was accepted, and the error of an RPC that is refused."""


def closed_to_users(services: Iterable[ServiceDescriptor]) -> frozenset[str]:
    """Return the public methods that serve administrators only, a project's included, by path."""
    return _closed(services, _TO_USERS)


def closed_to_projects(services: Iterable[ServiceDescriptor]) -> frozenset[str]:
    """Return the public methods that serve the mesh's administrators only, by path."""
    return _closed(services, _TO_PROJECTS)


def _closed(services: Iterable[ServiceDescriptor], serving: Container[options_pb2.Access.ValueType]) -> frozenset[str]:
    methods = [method for service in services for method in service.methods if is_public(method)]
    closed = [method for method in methods if method.GetOptions().Extensions[options_pb2.access] not in serving]
    return frozenset(f"/{one.containing_service.full_name}/{one.name}" for one in closed)


def changing(services: Iterable[ServiceDescriptor]) -> frozenset[str]:
    """Return the public methods that have side effects, by path."""
    methods = [method for service in services for method in service.methods if is_public(method)]
    none = descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS
    found = [method for method in methods if method.GetOptions().idempotency_level != none]
    return frozenset(f"/{one.containing_service.full_name}/{one.name}" for one in found)


def without_sandbox(services: Iterable[ServiceDescriptor]) -> frozenset[str]:
    """Return the public methods that name no sandbox, by path, but the one that says who the caller is.

    Those of calls all name one, in their frames.
    """
    methods = [
        method
        for service in services
        if service.name != "CallService"
        for method in service.methods
        if is_public(method) and "sandbox_id" not in method.input_type.fields_by_name and method.name != "GetPrincipal"
    ]
    return frozenset(f"/{method.containing_service.full_name}/{method.name}" for method in methods)


@dataclass(frozen=True)
class Closed:
    """The methods that some principals may not call, by path."""

    to_users: frozenset[str]
    to_projects: frozenset[str]
    to_readers: frozenset[str]
    to_one_sandbox: frozenset[str]
    """Which sandbox a request names is checked by what serves it, as whose it is."""

    def check(self, principal: Principal, method: str) -> None:
        """Check that a principal may call a method.

        Raises:
            PermissionDenied: It may not.
        """
        if principal.scope == "user" and method in (self.to_projects if principal.project else self.to_users):
            message = f"{method} is for administrators: use a token of the scope admin"
            raise PermissionDenied(message, {"method": method})
        if principal.sandbox_id and method in self.to_one_sandbox:
            message = (
                f"the token is only for the sandbox {principal.sandbox_id}: {method} needs the scope user or admin"
            )
            raise PermissionDenied(message, {"method": method})
        if principal.read_only and method in self.to_readers:
            message = f"the token is read-only, and {method} has side effects: use a token of the scope user or admin"
            raise PermissionDenied(message, {"method": method})


def admitted(
    settings: GatewaySettings,
    tokens: KnownTokens,
    closed: Closed,
    refused: Refused,
) -> Around:
    """Serve each RPC for the principal whose token it shows, as long as that token is in force.

    On a unix socket, which only the mesh's own user can open, and where no token is required, it may be left out;
    the principal is an administrator then.
    """
    authenticator = _Authenticator(settings, tokens)

    @asynccontextmanager
    async def check(method: str, context: Context) -> AsyncGenerator[None]:
        if method.startswith(OPEN_METHODS):
            yield
            return
        try:
            grant, principal = await authenticator.admit(context)
        except Unauthenticated as error:
            # Who goes on guessing fills no audit: the attempts before are in it.
            if error.facts.get("token") != LIMITED:
                refused(method, context.peer(), None, error)
            raise
        try:
            closed.check(principal, method)
        except PermissionDenied as denied:
            refused(method, context.peer(), principal, denied)
            raise
        with acting_for(principal):
            if not grant.token_id:
                yield
                return
            async with tokens.holding(grant):
                yield

    return check


class _Authenticator:
    def __init__(self, settings: GatewaySettings, tokens: KnownTokens) -> None:
        self._required = token_required(settings)
        self._static = settings.bearer_token.get_secret_value().encode() if settings.bearer_token else b""
        self._static_grant = Grant(Principal("user", settings.bearer_user) if settings.bearer_user else ADMIN)
        self._proof = door_proof(settings.url_secret.get_secret_value()).encode() if settings.url_secret else b""
        self._tokens = tokens
        self._failures = Failures()

    async def admit(self, context: Context) -> tuple[Grant, Principal]:
        shown, proof = split_proof(_shown(context))
        grant = await self._grant(shown, context)
        if not proof or not await self._is_door(proof, context):
            return grant, grant.principal
        return grant, replace(grant.principal, door=True)

    async def _is_door(self, proof: str, context: Context) -> bool:
        if self._proof and hmac.compare_digest(proof.encode(), self._proof):
            return True
        # What is not a token follows from the secret of another mesh: its door is served as any client is.
        if not proof.startswith(PREFIXES):
            return False
        own = await self._grant(proof, context)
        return own.principal.scope == "admin" and not own.principal.read_only

    async def _grant(self, shown: str, context: Context) -> Grant:
        if not shown:
            if self._required and not context.peer().startswith("unix:"):
                fix = "pass bearer_token=..., set SANDMESH_TOKEN or send `authorization: Bearer ...`"
                raise Unauthenticated(f"this mesh wants a token: {fix}", {"token": "missing"})
            return _UNLIMITED
        if self._static and hmac.compare_digest(shown.encode(), self._static):
            return self._static_grant
        return self._tokens.known(shown) or await self._look_up(shown, context.peer())

    async def _look_up(self, shown: str, peer: str) -> Grant:
        self._failures.check(peer)
        try:
            return await self._tokens.check(shown)
        except Unauthenticated:
            self._failures.note(peer)
            raise


def _shown(context: Context) -> str:
    value = dict(context.invocation_metadata() or ()).get("authorization", "")
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    kind, _, token = text.partition(" ")
    return token.strip() if kind.lower() == "bearer" else text
