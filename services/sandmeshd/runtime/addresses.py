"""Which addresses others than this machine's processes could reach, and what those of peers are counted by."""

from __future__ import annotations

import ipaddress

from sandmesh.errors import InvalidArgument


def is_open(address: str) -> bool:
    """Return whether others than this machine's processes could reach an address."""
    return not address.startswith("unix://") and not _is_loopback(address.rpartition(":")[0])


def check_private(address: str, *, has_secret: bool) -> None:
    """Refuse an address of a service that others could reach while the mesh has no secret.

    Raises:
        InvalidArgument: It is one.
    """
    if is_open(address) and not has_secret:
        fix = "give all services of the mesh one secret, by --secret-file or SANDMESH_MESH_SECRET"
        raise InvalidArgument(f"a service does not listen at {address} without a secret: {fix}", {"fix": fix})


def peer_network(address: str) -> str:
    """Return what connections of an address are counted by: itself, of IPv6 its network of 64 bits; empty for loopback.

    From loopback come the connections of proxies, which are everybody's.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    if mapped.is_loopback:
        return ""
    return str(mapped if mapped.version == 4 else ipaddress.ip_network((mapped, 64), strict=False))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
