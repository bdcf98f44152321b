"""Reads where a request is to go. Every form that two programs could read differently is refused."""

from __future__ import annotations

from dataclasses import dataclass

from sandmesh.shared.hosts import plain_host
from sandmesh.shared.numbers import decimal
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget

_SHOWN = 255


@dataclass(frozen=True)
class Resource:
    """What a request in absolute form asks for."""

    target: EgressTarget
    path: str


def read_authority(text: str, default_port: int | None = None) -> EgressTarget:
    """Read `host:port`.

    Raises:
        Refused: It is not in a form that is taken.
    """
    host, found, port = text.rpartition(":")
    if not found or text.endswith("]"):
        host, port = text, "" if default_port is None else str(default_port)
    plain = plain_host(host) if _is_bare(host) else None
    if plain is None:
        raise _malformed(text, "no host or address in its usual form")
    number = decimal(port, 65_535)
    if not number:
        raise _malformed(text, "without a valid port")
    return EgressTarget(plain, number)


def read_url(text: str) -> Resource:
    """Read an absolute http:// URL.

    Raises:
        Refused: It is not in a form that is taken.
    """
    scheme, found, rest = text.partition("://")
    if not found or scheme.lower() != "http":
        raise _malformed(text, "neither an http:// URL nor a CONNECT")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    path = rest[end:].partition("#")[0]
    return Resource(read_authority(rest[:end], 80), path if path.startswith("/") else f"/{path}")


def _is_bare(host: str) -> bool:
    # An address of IPv6 must be in brackets; users, passwords and escapes have no place here.
    return bool(host) and (":" not in host or (host.startswith("[") and host.endswith("]")))


def _malformed(text: str, what: str) -> EgressRefused:
    shown = text[:_SHOWN]
    return EgressRefused(shown, 0, f"{shown!r} is {what}", "Write the host's name, or its address in the usual form.")
