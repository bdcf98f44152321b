"""Who may come in."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh.errors import InvalidArgument, Unauthenticated
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.runtime.interception import Around, Context

# What tells that a server lives says nothing of what is in it.
OPEN_METHODS = ("/grpc.health.v1.Health/",)


def check_addresses(settings: GatewaySettings) -> None:
    """Refuse addresses beyond loopback: neither TLS nor named tokens are there to protect them.

    Raises:
        InvalidArgument: One is not a unix socket or a loopback address.
    """
    for address in (*settings.listen, *settings.http_listen):
        if not address.startswith("unix://") and not _is_loopback(address.rpartition(":")[0]):
            message = (
                f"the gateway does not listen at {address}: it is open to others and there is no TLS; "
                "listen at 127.0.0.1 or a unix socket and put a TLS proxy or an SSH tunnel before it"
            )
            raise InvalidArgument(message, {"address": address})


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bearer_required(settings: GatewaySettings) -> Around:
    """Ask every client that is not on a unix socket for the token, where there is one."""
    token = settings.bearer_token
    expected = f"Bearer {token.get_secret_value()}".encode() if token is not None else b""

    @asynccontextmanager
    async def check(method: str, context: Context) -> AsyncGenerator[None]:
        if expected and not method.startswith(OPEN_METHODS) and not context.peer().startswith("unix:"):
            _check(context, expected)
        yield

    return check


def _check(context: Context, expected: bytes) -> None:
    given = dict(context.invocation_metadata() or ()).get("authorization", "")
    raw = given if isinstance(given, bytes) else given.encode()
    if not hmac.compare_digest(raw, expected):
        said = "the bearer token is not valid" if raw else "this mesh wants a bearer token"
        raise Unauthenticated(f"{said}: pass bearer_token=... or send `authorization: Bearer TOKEN`")
