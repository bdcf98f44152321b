"""Addresses of a mesh as users write them, and where one is when none is given."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from sandmesh._paths import LOCAL_MESH_ID, default_runtime_directory, gateway_socket
from sandmesh.errors import InvalidArgument

VARIABLE = "SANDMESH_ADDRESS"
FORMS = "unix:///path, host:port, grpc://host:port, http://host:port or https://host[:port], or several with commas"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Target:
    """What a channel dials: gRPC's own name for it, whether TLS is used, whether a proxy may be between."""

    address: str
    name: str
    secure: bool = False
    proxied: bool = False

    @property
    def path(self) -> str | None:
        """The path of a unix socket."""
        return self.name.removeprefix("unix:") if self.name.startswith("unix:") else None


def parse(address: str) -> Target:
    """Read an address.

    Raises:
        InvalidArgument: It has none of the forms that are taken.
    """
    if address.startswith("unix:"):
        path = "/" + address.removeprefix("unix:").lstrip("/")
        return Target(address, f"unix:{path}")
    parts = urlsplit(address if "://" in address else f"grpc://{address}")
    default = {"http": 80, "https": 443}.get(parts.scheme)
    try:
        port = parts.port or default
    except ValueError:
        port = None
    host = parts.hostname
    if parts.scheme not in ("grpc", "http", "https") or not host or not port or _has_more(parts):
        raise InvalidArgument(f"{address!r} is no address of a mesh: write {FORMS}", {"address": address})
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Target(address, name, secure=parts.scheme == "https", proxied=host not in LOOPBACK)


def parse_all(addresses: str) -> tuple[Target, ...]:
    """Read the addresses of a mesh's gateways, parted by commas: any of them leads to the same sandboxes.

    Raises:
        InvalidArgument: One has none of the forms that are taken.
    """
    return tuple(parse(address.strip()) for address in addresses.split(","))


def _has_more(parts: SplitResult) -> bool:
    return bool(parts.path.strip("/") or parts.query or parts.fragment or parts.username)


def configured(base_url: str | None) -> str | None:
    """Give the address that is stated, or that of the local mesh where it answers; none: a private mesh is wanted."""
    if base_url is not None:
        return base_url
    stated = os.environ.get(VARIABLE)
    if stated:
        return stated
    local = gateway_socket(default_runtime_directory(), LOCAL_MESH_ID)
    return f"unix://{local}" if answers(local) else None


def answers(path: Path) -> bool:
    """Say whether a socket of this user has somebody behind it."""
    # A socket file outlives the process that made it, so only a connection tells.
    try:
        if path.stat().st_uid != os.geteuid():
            return False
        with closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except OSError:
        return False
    return True
