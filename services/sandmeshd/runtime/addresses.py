"""Which addresses others than this machine's processes could reach."""

from __future__ import annotations

import ipaddress

from sandmesh.errors import InvalidArgument


def is_open(address: str) -> bool:
    """Return whether others than this machine's processes could reach an address."""
    return not address.startswith("unix://") and not _is_loopback(address.rpartition(":")[0])


def check_private(address: str, *, has_secret: bool) -> None:
    """Refuse an address of a service that others could reach while the mesh has no secret of its own.

    Raises:
        InvalidArgument: It is one.
    """
    if is_open(address) and not has_secret:
        fix = "give all services of the mesh one secret, by --secret-file or SANDMESH_MESH_SECRET"
        raise InvalidArgument(f"a service does not listen at {address} without a secret: {fix}", {"fix": fix})


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
