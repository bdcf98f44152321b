"""Where agents listen, for those who connect: a socket of this machine, or TLS with a certificate that is known before.

Such a certificate is the sandbox's own and signed by nobody. Who connects compares its SHA-256 with the address's pin,
and only then says a word: whoever is in between can neither answer for the agent nor read or change what is said.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from dataclasses import dataclass
from functools import cache
from typing import Protocol
from urllib.parse import parse_qs, urlsplit


class _Connected(Protocol):
    def get_extra_info(self, name: str, default: object = None) -> object: ...


@dataclass(frozen=True)
class AgentAddress:
    """An endpoint, read: the path of a socket, or host and port, with a pin where TLS is spoken there."""

    path: str = ""
    host: str = ""
    port: int = 0
    pin: str = ""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What to connect with, None where TLS is not spoken."""
        return _any_certificate() if self.pin else None

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
            raise ConnectionError(f"what answers at {self.host}:{self.port} is not the sandbox's agent")


@cache
def _any_certificate() -> ssl.SSLContext:
    # No authority signs them: the pin is what holds.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def read_address(endpoint: str) -> AgentAddress:
    """Read unix:///path, tcp://host:port or tls://host:port?pin=HEX.

    Raises:
        ConnectionError: It is none of them.
    """
    parts = urlsplit(endpoint)
    pin = parse_qs(parts.query).get("pin", [""])[0]
    if parts.scheme == "unix":
        return AgentAddress(path=endpoint.removeprefix("unix://"))
    if parts.hostname and parts.port and (parts.scheme == "tcp" or (parts.scheme == "tls" and pin)):
        return AgentAddress(host=parts.hostname, port=parts.port, pin=pin if parts.scheme == "tls" else "")
    raise ConnectionError(f"no agent can be reached at {endpoint!r}")


def tls_endpoint(host: str, port: int, pin: str) -> str:
    """Write the address of an agent that shows the certificate with a SHA-256."""
    return f"tls://{f'[{host}]' if ':' in host else host}:{port}?pin={pin}"
