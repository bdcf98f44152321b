"""Which mesh a command talks to."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import Annotated

import typer

CONNECTION = "Connection"


def own_user() -> str:
    """Say who runs this command: the name, or the number where this machine knows no name for it, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


@dataclass(frozen=True)
class Where:
    """Which mesh a command talks to, and as whom."""

    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url",
            envvar="SANDMESH_ADDRESS",
            help="The mesh, like grpc://host:port; by default this user's local one.",
            rich_help_panel=CONNECTION,
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            "--bearer-token",
            envvar=["SANDMESH_TOKEN", "SANDMESH_BEARER_TOKEN"],
            help="The bearer token; better given by the environment than in the command line.",
            rich_help_panel=CONNECTION,
        ),
    ] = None
