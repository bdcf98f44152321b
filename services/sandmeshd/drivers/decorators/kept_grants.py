"""Grants that were changed while their sandboxes ran, as files that the next run of the driver reads."""

from __future__ import annotations

from pathlib import Path

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.shared.atomic_file import open_replacement


class KeptGrants:
    """One file for each sandbox whose grant is another than it was made with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, sandbox_id: str) -> sandbox_pb2.NetworkGrant | None:
        """Return a sandbox's grant, None where it was never changed."""
        try:
            return sandbox_pb2.NetworkGrant.FromString((self._folder / sandbox_id).read_bytes())
        except FileNotFoundError:
            return None

    def write(self, sandbox_id: str, grant: sandbox_pb2.NetworkGrant) -> None:
        """Keep a grant."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with open_replacement(str(self._folder / sandbox_id), 0o600) as file:
            file.write(grant.SerializeToString())

    def remove(self, sandbox_id: str) -> None:
        """Forget a sandbox's grant."""
        (self._folder / sandbox_id).unlink(missing_ok=True)
