"""What shows this mesh to agents that wait for their configuration, in warm pools and in pods of an ordinary user."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandmeshd.agentlink.birth import load_mesh_identity
from sandmeshd.drivers.node.identity import new_identity


@dataclass(frozen=True)
class MeshIdentity:
    """A certificate of the mesh, and its hash, by which agents know it."""

    context: ssl.SSLContext
    pin: str


def passing_identity() -> MeshIdentity:
    """Make the certificate of one driver's life: what an earlier driver left waiting is recreated."""
    made = new_identity()
    with tempfile.NamedTemporaryFile() as file:
        file.write(made.pem)
        file.flush()
        return MeshIdentity(load_mesh_identity(Path(file.name)), made.pin)
