"""Where agents listen, for those who connect: a socket of this machine, TLS with a pinned certificate, or a WebSocket.

A pinned certificate is the sandbox's own and self-signed. The client compares its SHA-256 with the address's
pin, before it sends anything: an attacker in between can neither answer for the agent nor read or change what is said.
At a WebSocket's address TLS ends at a cloud's gateway or a proxy, whose certificate the system's authorities sign.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit, urlunsplit

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PIN: Final = "?pin="
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


class _Connected(Protocol):
    def get_extra_info(self, name: str, default: object = None) -> object: ...


@dataclass(frozen=True)
class AgentAddress:
    """An endpoint, read: the path of a socket, or host and port; with TLS, a pin or the target of a request."""

    path: str = ""
    host: str = ""
    port: int = 0
    pin: str = ""
    target: str = ""
    """Of the request for a WebSocket; empty where frames are sent as they are."""
    affinity: tuple[str, str] | None = None
    """The header by which a cloud's gateway finds the sandbox, and its value."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What to connect with, None where TLS is not spoken."""
        if self.target:
            return system_authorities()
        return _any_certificate() if self.pin else None

    @property
    def holds(self) -> bool:
        """Whether a link there may be quiet for long: a cloud's gateway ends those, or has them paid."""
        return not self.target

    def check(self, connected: _Connected) -> None:
        """Check that a transport, or stream, which was just connected ends at the agent that is meant.

        Raises:
            ConnectionError: It shows another certificate.
        """
        if not self.pin:
            return
        shown = connected.get_extra_info("ssl_object")
        certificate = shown.getpeercert(binary_form=True) if isinstance(shown, ssl.SSLObject) else None
        if not hmac.compare_digest(hashlib.sha256(certificate or b"").hexdigest(), self.pin):
            where = self.path or f"{self.host}:{self.port}"
            raise ConnectionError(f"what answers at {where} is not the sandbox's agent")


@cache
def _any_certificate() -> ssl.SSLContext:
    # No authority signs them: the pin is what holds.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


@cache
def system_authorities() -> ssl.SSLContext:
    """Return what checks certificates by the system's authorities, or those of SSL_CERT_FILE."""
    return ssl.create_default_context()


def read_address(endpoint: str) -> AgentAddress:
    """Read unix:///path[?pin=HEX], tcp://host:port, tls://host:port?pin=HEX or wss://host/path?affinity=NAME:VALUE.

    With a pin, TLS is spoken over the socket: it leads to an agent that is elsewhere.

    Raises:
        ConnectionError: It is none of them.
    """
    parts = urlsplit(endpoint)
    if parts.scheme == "wss" and parts.hostname:
        return _read_websocket(endpoint)
    pin = parse_qs(parts.query).get("pin", [""])[0]
    if parts.scheme == "unix":
        path, _, pin = endpoint.removeprefix("unix://").partition(_PIN)
        return AgentAddress(path=path, pin=pin)
    if parts.hostname and parts.port and (parts.scheme == "tcp" or (parts.scheme == "tls" and pin)):
        return AgentAddress(host=parts.hostname, port=parts.port, pin=pin if parts.scheme == "tls" else "")
    raise ConnectionError(f"no agent can be reached at {endpoint!r}")


def _read_websocket(endpoint: str) -> AgentAddress:
    parts = urlsplit(endpoint)
    query = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for name, value in query if name == "affinity"]
    affinity: tuple[str, str] | None = None
    if named:
        name, _, value = named[0].partition(":")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ConnectionError(f"the affinity in {endpoint!r} is not NAME:VALUE of a header")
        affinity = name, value
    rest = urlencode([(name, value) for name, value in query if name != "affinity"])
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{rest}" if rest else "")
    return AgentAddress(host=parts.hostname or "", port=parts.port or 443, target=target, affinity=affinity)


def websocket_endpoint(url: str, header: str, value: str) -> str:
    """Write the address of an agent behind a cloud's gateway, from the gateway's URL and the header that finds it."""
    parts = urlsplit(url)
    query = urlencode([*parse_qsl(parts.query), ("affinity", f"{header}:{value}")])
    return urlunsplit(("wss", parts.netloc, parts.path or "/", query, ""))


def tls_endpoint(host: str, port: int, pin: str) -> str:
    """Write the address of an agent that shows the certificate with a SHA-256."""
    return f"tls://{f'[{host}]' if ':' in host else host}:{port}?pin={pin}"


def forwarded_endpoint(endpoint: str, path: str) -> str:
    """Write the address of the same agent behind a socket of this machine, which leads to it."""
    return f"unix://{path}{_PIN}{read_address(endpoint).pin}"
