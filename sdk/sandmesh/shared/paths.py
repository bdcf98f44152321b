"""The paths at which a user's mesh and its clients meet."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from sandmesh.errors import InvalidArgument

LOCAL_MESH_ID = "local"


def default_state_directory() -> Path:
    """Return the state directory of this user: /var/lib/sandmesh for root, else below XDG_STATE_HOME.

    Raises:
        InvalidArgument: The user has no home directory.
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
        raise InvalidArgument(f"the user {os.getuid()} has no home directory: {fix}", {"fix": fix}) from None


def default_runtime_directory() -> Path:
    """Return the directory of this user's sockets: short, because a unix socket's path has at most 107 bytes."""
    if os.geteuid() == 0:
        return Path("/run/sandmesh")
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    usable = base.is_dir() and base.stat().st_uid == os.geteuid() and len(str(base)) < 40
    return base / "sandmesh" if usable else Path(f"/tmp/sandmesh-{os.geteuid()}")  # noqa: S108 - owner is checked


def mesh_runtime(runtime_root: Path, mesh_id: str) -> Path:
    """Return the directory of one mesh's sockets: a hash, because a mesh_id may be too long for a socket's path."""
    return runtime_root / hashlib.sha256(mesh_id.encode()).hexdigest()[:10]


def gateway_socket(runtime_root: Path, mesh_id: str) -> Path:
    """Return the gateway's socket of a mesh."""
    return mesh_runtime(runtime_root, mesh_id) / "s" / "g"


def local_gateway() -> Path:
    """Return the gateway's socket of this user's local mesh, from the environment or the default directory."""
    configured = os.environ.get("SANDMESH_RUNTIME_DIRECTORY")
    directory = Path(configured) if configured else default_runtime_directory()
    return gateway_socket(directory, os.environ.get("SANDMESH_MESH_ID") or LOCAL_MESH_ID)
