"""Where the adapter listens for HTTP, and by which names it may be called there."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from sandmesh.errors import InvalidArgument, MeshUnavailable
from sandmeshd.facades.mcp.settings import HttpSettings
from sandmeshd.runtime.addresses import is_open

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def token_required(settings: HttpSettings) -> bool:
    """Say whether clients must show a token."""
    if settings.require_token is not None:
        return settings.require_token
    return settings.tls_cert is not None or any(is_open(address) for address in settings.listen)


def check_addresses(settings: HttpSettings) -> None:
    """Refuse addresses beyond loopback without TLS and tokens, unless the settings say in words that they may be.

    Raises:
        InvalidArgument: One is open to others and something that protects it is missing.
    """
    address = next((one for one in settings.listen if is_open(one)), None)
    if address is None or settings.allow_insecure:
        return
    if settings.tls_cert is None:
        missing = "there is no TLS, so tokens and data could be read on the way"
        fix = "give --tls-cert and --tls-key (`sandmesh certificate` makes a pair for trials)"
    elif not token_required(settings):
        missing, fix = "no token is asked for", "leave out --no-require-token"
    else:
        return
    message = (
        f"the MCP adapter does not listen at {address}, which is open to others: {missing}; {fix}, "
        "listen at 127.0.0.1, or say --allow-insecure"
    )
    raise InvalidArgument(message, {"address": address, "fix": fix})


def bind(address: str) -> socket.socket:
    """Listen at host:port.

    Raises:
        InvalidArgument: It has another form.
        MeshUnavailable: It cannot be listened at.
    """
    host, found, port = address.rpartition(":")
    if not found or not host or not port.isdecimal():
        raise InvalidArgument(f"{address!r} is no address to listen at: write host:port", {"address": address})
    bare = host.strip("[]")
    try:
        kind = socket.getaddrinfo(bare, int(port), type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((bare, int(port)), family=kind)
    except (OSError, OverflowError) as error:
        message = f"cannot listen at {address} for HTTP: {error}; free it or choose another address"
        raise MeshUnavailable(message, {"address": address}) from None


def written(bound: socket.socket) -> str:
    """Give a socket's address as host:port."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Names:
    """By which names clients may call the adapter, and from which web pages.

    A page of another site could otherwise reach a loopback address through a browser, by a name that it points there.
    """

    def __init__(self, settings: HttpSettings, bound: Sequence[str]) -> None:
        ports = {address.rpartition(":")[2] for address in bound}
        loopback = {f"{host}:{port}" for host in LOOPBACK for port in ports}
        self._hosts = {*bound, *loopback, *settings.allowed_hosts}
        self._origins = set(settings.allowed_origins)
        # Beyond loopback a token protects, and how clients name this machine is not ours to know.
        self._any_host = not settings.allowed_hosts and any(is_open(address) for address in settings.listen)

    def takes_host(self, host: str) -> bool:
        """Say whether a request may name this host."""
        return self._any_host or host in self._hosts or host.rpartition(":")[0] in self._hosts

    def takes_origin(self, origin: str | None) -> bool:
        """Say whether a page of this origin may ask; programs that are no browsers name none."""
        return origin is None or origin in self._origins or urlsplit(origin).netloc in self._hosts
