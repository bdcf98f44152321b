"""Where a mesh of this user is found: the one computation that the mesh and its clients share."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from sandmesh.errors import InvalidArgument

LOCAL_MESH_ID = "local"


def default_state_directory() -> Path:
    """Give the state directory of this user: /var/lib/sandmesh for root, else below XDG_STATE_HOME.

    Raises:
        InvalidArgument: Nothing says where this user's home is.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/sandmesh")
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else _home() / ".local" / "state") / "sandmesh"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        fix = "set HOME or SANDMESH_STATE_DIRECTORY"
        raise InvalidArgument(f"this machine knows no home of the user {os.getuid()}: {fix}", {"fix": fix}) from None


def default_runtime_directory() -> Path:
    """Give the directory of sockets of this user: short, because a unix socket's path holds 107 bytes at most."""
    if os.geteuid() == 0:
        return Path("/run/sandmesh")
    base = Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"))
    usable = base.is_dir() and base.stat().st_uid == os.geteuid() and len(str(base)) < 40
    return base / "sandmesh" if usable else Path(f"/tmp/sandmesh-{os.geteuid()}")  # noqa: S108 - owner is checked


def mesh_runtime(runtime_root: Path, mesh_id: str) -> Path:
    """Give the directory of one mesh's sockets: a hash, because a mesh_id may be longer than a path has room."""
    return runtime_root / hashlib.sha256(mesh_id.encode()).hexdigest()[:10]


def gateway_socket(runtime_root: Path, mesh_id: str) -> Path:
    """Give the socket at which a mesh's programs find it."""
    return mesh_runtime(runtime_root, mesh_id) / "s" / "g"


def local_gateway() -> Path:
    """Give the socket of this user's local mesh, which is where the environment says or at the usual place."""
    stated = os.environ.get("SANDMESH_RUNTIME_DIRECTORY")
    directory = Path(stated) if stated else default_runtime_directory()
    return gateway_socket(directory, os.environ.get("SANDMESH_MESH_ID") or LOCAL_MESH_ID)
