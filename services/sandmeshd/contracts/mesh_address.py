"""The mesh that a facade is a client of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _unrecorded(sandbox_id: str, peer: str) -> None:
    """Record nothing: a facade that runs apart has no audit."""


@dataclass(frozen=True)
class MeshAddress:
    """A mesh's address, and the administrator's token that a facade shows where it acts for no user."""

    url: str
    token: str | None = None
    """None where the mesh takes the facade for an administrator by its socket, or requires no tokens."""
    proof: str = ""
    """What shows the mesh that the facade is one of its doors, which set labels that others may not."""
    refused: Callable[[str, str], None] = _unrecorded
    """Records in the audit that a client did not show a sandbox's own token; takes the sandbox's id and the client's
    address."""
