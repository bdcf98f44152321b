"""The mesh that a facade is a client of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MeshAddress:
    """A mesh's address, and the administrator's token that a facade shows where it acts for no user."""

    url: str
    token: str | None = None
    """None where the mesh takes the facade for an administrator by its socket, or requires no tokens."""
    proof: str = ""
    """What shows the mesh that the facade is one of its doors, which set labels that others may not."""
