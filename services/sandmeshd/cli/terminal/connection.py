"""Which mesh a command talks to, and as whom."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sandmesh.errors import MeshUnavailable

if TYPE_CHECKING:
    from sandmesh import SandboxAsync
    from sandmesh.mesh import MeshAsync

PANEL = "Connection"
REQUEST_SECONDS = 10.0
CALL_SECONDS = 3000.0


def own_user() -> str:
    """Return the name of this user, or the number where the machine has no name for it, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


@dataclass(frozen=True)
class ConnectionOptions:
    """The mesh that a command talks to, and the token that it shows."""

    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url",
            envvar="SANDMESH_ADDRESS",
            help="The mesh, like grpc://host:port; by default this user's local one.",
            rich_help_panel=PANEL,
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            "--bearer-token",
            envvar=["SANDMESH_TOKEN", "SANDMESH_BEARER_TOKEN"],
            help="The bearer token; set it in the environment rather than in the command line.",
            rich_help_panel=PANEL,
        ),
    ] = None

    # The SDK is imported where it is used: a command's help needs none of it.

    @property
    def address(self) -> str | None:
        """The mesh's address; None where none is named and no local mesh runs."""
        from sandmesh.mesh import find_mesh  # noqa: PLC0415

        return find_mesh(self.base_url or None)

    def require_address(self) -> str:
        """Return the mesh's address.

        Raises:
            MeshUnavailable: None is named and no local mesh runs.
        """
        address = self.address
        if address is None:
            fix = "start one with `sandmesh up -d`, or name one by --base-url or SANDMESH_ADDRESS"
            raise MeshUnavailable(f"no mesh of this user runs here: {fix}", {"fix": fix})
        return address

    def mesh(self, timeout: float = REQUEST_SECONDS) -> MeshAsync:
        """Return a client of the mesh, not yet connected."""
        from sandmesh.mesh import MeshAsync  # noqa: PLC0415

        return MeshAsync(self.base_url or None, self.token, timeout)

    def sandbox(self, sandbox_id: str, timeout: float = CALL_SECONDS) -> SandboxAsync:
        """Return an existing sandbox of the mesh, not yet opened.

        Raises:
            MeshUnavailable: No mesh is named and no local one runs.
        """
        from sandmesh import SandboxAsync  # noqa: PLC0415

        return SandboxAsync(sandbox_id, timeout, self.require_address(), self.token)
