"""Addresses of a mesh as users write them, and where one is when none is given."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from sandmesh.errors import InvalidArgument
from sandmesh.shared.paths import local_gateway

VARIABLE = "SANDMESH_ADDRESS"
CA_VARIABLE = "SANDMESH_CA_FILE"
TOKEN_VARIABLES = ("SANDMESH_TOKEN", "SANDMESH_BEARER_TOKEN")
NEW_CALL_VARIABLE = "SANDMESH_NEW_CALL_SECONDS"
NEW_CALL_SECONDS = 5.0
"""How long a new call waits for a mesh that does not answer, unless the environment has another number."""
FORMS = "unix:///path, host:port, grpc[s]://host:port or http[s]://host[:port], or several with commas"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class DialTarget:
    """What a channel dials: gRPC's own name for it, whether TLS is used, whether a proxy may be between.

    With TLS the mesh's certificate must be signed by one of `certificates`, by default the system's.
    """

    address: str
    name: str
    secure: bool = False
    proxied: bool = False
    certificates: bytes | None = None

    @property
    def path(self) -> str | None:
        """The path of a unix socket."""
        return self.name.removeprefix("unix:") if self.name.startswith("unix:") else None


def parse(address: str) -> DialTarget:
    """Read an address.

    Raises:
        InvalidArgument: It has none of the forms that are taken.
    """
    if address.startswith("unix:"):
        path = "/" + address.removeprefix("unix:").lstrip("/")
        return DialTarget(address, f"unix:{path}")
    parts = urlsplit(address if "://" in address else f"grpc://{address}")
    default = {"http": 80, "https": 443}.get(parts.scheme)
    try:
        port = parts.port or default
    except ValueError:
        port = None
    host = parts.hostname
    if parts.scheme not in ("grpc", "grpcs", "http", "https") or not host or not port or _has_more(parts):
        raise InvalidArgument(f"invalid mesh address {address!r}: expected {FORMS}", {"address": address})
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return DialTarget(address, name, secure=parts.scheme in ("https", "grpcs"), proxied=host not in LOOPBACK)


def parse_all(addresses: str) -> tuple[DialTarget, ...]:
    """Read the addresses of a mesh's gateways, parted by commas: any of them leads to the same sandboxes.

    Raises:
        InvalidArgument: One has none of the forms that are taken.
    """
    return tuple(parse(address.strip()) for address in addresses.split(","))


def _has_more(parts: SplitResult) -> bool:
    return bool(parts.path.strip("/") or parts.query or parts.fragment or parts.username)


def configured(base_url: str | None) -> str | None:
    """Return the configured address, or that of the local mesh where it answers; None for a private mesh."""
    if base_url is not None:
        return base_url
    address = os.environ.get(VARIABLE)
    if address:
        return address
    # Where there are no unix sockets there is no local mesh either.
    if not hasattr(socket, "AF_UNIX"):
        return None
    local = local_gateway()
    return f"unix://{local}" if answers(local) else None


def configured_token(address: str, bearer_token: str | None) -> str | None:
    """Return the explicit token, or the environment's; a unix socket, which needs none, gets an explicit one only."""
    if bearer_token is not None or address.startswith("unix:"):
        return bearer_token
    return next((os.environ[name] for name in TOKEN_VARIABLES if os.environ.get(name)), None)


def trusting(target: DialTarget, ca_cert: str | Path | None) -> DialTarget:
    """Add the certificates that the mesh's must be signed by: those of the file that is stated, or the environment's.

    Raises:
        InvalidArgument: The file cannot be read or has none, or the address has no TLS to use it for.
    """
    if ca_cert is not None and not target.secure:
        raise InvalidArgument(f"ca_cert is for https:// and grpcs:// addresses, not {target.address}")
    path = ca_cert or os.environ.get(CA_VARIABLE)
    if not path or not target.secure:
        return target
    try:
        found = Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"the certificates in {path} cannot be read: {error.strerror}") from None
    if b"BEGIN CERTIFICATE" not in found:
        raise InvalidArgument(f"{path} has no certificate in PEM")
    return replace(target, certificates=found)


def new_call_seconds() -> float:
    """Return how long a new call waits for a mesh that does not answer; calls under way wait longer.

    Raises:
        InvalidArgument: The environment's is not a number above 0.
    """
    value = os.environ.get(NEW_CALL_VARIABLE)
    try:
        seconds = float(value) if value else NEW_CALL_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgument(f"{NEW_CALL_VARIABLE} is a number of seconds above 0, not {value!r}")
    return seconds


def answers(path: Path) -> bool:
    """Return whether a socket of this user has a listener."""
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
