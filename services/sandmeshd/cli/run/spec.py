"""What a sandbox that a command makes is to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from sandmesh.inputs import Options
from sandmeshd.cli.terminal.options import Limit, Template, limits, pairs


@dataclass(frozen=True)
class Making:
    """What a sandbox is to be: its template, variables, limits, network and first files."""

    template: Template = "base"
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", help="A variable of what runs; repeatable.", metavar="NAME=VALUE")
    ] = None
    limit: Limit = None
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            "-n",
            help="What it may reach: none, public, packages, or hosts such as example.org:8443; repeatable.",
            metavar="WHAT",
        ),
    ] = None

    workspace_dir: Annotated[
        str | None,
        typer.Option(help="A directory of the mesh's machine that is its workspace, and stays.", metavar="DIRECTORY"),
    ] = None
    snapshot: Annotated[
        str | None,
        typer.Option(help="The snapshot that its files begin with: `sandmesh snapshot ls`.", metavar="SNAPSHOT"),
    ] = None

    def options(self) -> Options:
        """Give it as the SDK's constructors take it."""
        return Options(
            env=pairs(self.env),
            limits=limits(self.limit),
            network=self.network or None,
            workspace_dir=self.workspace_dir,
            snapshot=self.snapshot,
        )
