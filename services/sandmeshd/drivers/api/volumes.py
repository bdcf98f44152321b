"""Names of volumes, and of whose they are: both are names of directories and of what is saved."""

from __future__ import annotations

import re
from typing import Final

from sandmesh.api.sandbox.v1 import sandbox_pb2

NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}")
OWNER: Final = re.compile(r"[0-9a-f]{8,128}")


def volume_paths(spec: sandbox_pb2.SandboxSpec) -> list[str]:
    """Return `OWNER/NAME` of each volume that a spec names; none where one of these cannot be a name."""
    names = sorted(set(spec.volumes.values()))
    if OWNER.fullmatch(spec.volumes_owner) is None or any(NAME.fullmatch(name) is None for name in names):
        return []
    return [f"{spec.volumes_owner}/{name}" for name in names]
