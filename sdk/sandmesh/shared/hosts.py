"""The hosts of a network grant: `example.org`, `*.example.org:8443`, `10.0.0.5`, `[::1]:*`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address

from sandmesh.errors import InvalidArgument
from sandmesh.shared.numbers import decimal

PACKAGES = "packages"
"""The preset: the package indexes that the driver's node is configured with."""

WEB_PORTS = frozenset({80, 443})
ANY_PORT = 0

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_FORMS = "a host, an address, *.domain or packages, optionally with a port, as in example.org:8443"


@dataclass(frozen=True)
class NamedHost:
    """One host of a grant; `port` is None for the web ports and 0 for all ports."""

    host: str
    port: int | None
    below: bool = False
    """Whether it matches every name below the host, and not the host itself."""

    def __str__(self) -> str:
        """Return the canonical form."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else ":*" if self.port == ANY_PORT else f":{self.port}"
        return f"{'*.' if self.below else ''}{shown}{port}"

    def covers(self, host: str) -> bool:
        """Return whether it matches a host in plain form, on any port."""
        return host.endswith("." + self.host) if self.below else host == self.host

    def allows(self, port: int) -> bool:
        """Return whether it matches a port."""
        return port in WEB_PORTS if self.port is None else self.port in {ANY_PORT, port}


def read_host(text: str) -> NamedHost:
    """Parse one host of a grant.

    Raises:
        InvalidArgument: It is not a host; the message has the accepted forms.
    """
    name, port = _split(text)
    below = name.startswith("*.")
    host = plain_host(name[2:] if below else name)
    if host is None or (below and is_address(host)):
        raise _refused(text)
    return NamedHost(host, port, below)


def normal_host(text: str) -> str:
    """Return the canonical form of a host of a grant, or of the preset.

    Raises:
        InvalidArgument: It is not a host.
    """
    return PACKAGES if text == PACKAGES else str(read_host(text))


def plain_host(text: str) -> str | None:
    """Return the plain form of a name or address: lower case, no trailing dot, no brackets; None for what is neither.

    Numbers that are not a dotted-quad IPv4 address are neither: programs disagree on what they mean.
    """
    if text.startswith("[") or ":" in text:
        return _address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    try:
        name = (text if text.isascii() else text.encode("idna").decode()).lower().removesuffix(".")
    except UnicodeError:
        return None
    labels = name.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return _address(name)
    return name if len(name) <= 253 and all(_LABEL.fullmatch(label) for label in labels) else None


def is_address(host: str) -> bool:
    """Return whether a host in plain form is an address."""
    return ":" in host or _NUMERIC.fullmatch(host.rpartition(".")[2]) is not None


def _address(text: str) -> str | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return str(address) if isinstance(address, IPv4Address) or address.scope_id is None else None


def _split(text: str) -> tuple[str, int | None]:
    if text.count(":") > 1 and not text.startswith("["):
        return text, None
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text, None
    if port == "*":
        return name, ANY_PORT
    number = decimal(port, 65_535)
    if not number:
        raise _refused(text)
    return name, number


def _refused(text: str) -> InvalidArgument:
    hint = "name only its host; " if "/" in text else 'write "public" for all public hosts; ' if text == "*" else ""
    return InvalidArgument(f"network: {text!r} is not a host: {hint}it must be {_FORMS}", {"argument": "network"})
