"""Options of the sandbox that a command creates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sandmesh.inputs import Options
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.options import Limit, Template, parse_limits, parse_pairs

if TYPE_CHECKING:
    from sandmesh import SandboxAsync


@dataclass(frozen=True)
class SandboxOptions:
    """The template, environment, limits, network and initial files of a sandbox."""

    template: Template = "base"
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="An environment variable; repeatable.", metavar="NAME=VALUE"),
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

    secret: Annotated[
        list[str] | None,
        typer.Option(
            help="A secret that the mesh stores, by its variable, and the hosts that get it; repeatable.",
            metavar="NAME=HOST[,HOST]",
        ),
    ] = None
    workspace_dir: Annotated[
        str | None,
        typer.Option(help="A directory of the mesh's machine as the workspace; it is kept.", metavar="DIRECTORY"),
    ] = None
    image: Annotated[
        str | None,
        typer.Option(help="The image that is its root: a name, oci:DIR or docker-archive:FILE.", metavar="IMAGE"),
    ] = None
    root: Annotated[
        bool | None,
        typer.Option("--root/--no-root", help="Whether its processes are root in the image; else as its USER says."),
    ] = None
    snapshot: Annotated[
        str | None,
        typer.Option(help="The snapshot to start from: see `sandmesh snapshot ls`.", metavar="SNAPSHOT"),
    ] = None

    profile: Annotated[
        str | None,
        typer.Option(help="The browser's profile, whose cookies and storage are kept.", metavar="NAME"),
    ] = None

    def options(self) -> Options:
        """Return the options as the SDK's constructors take them."""
        return Options(
            env=parse_pairs(self.env),
            limits=parse_limits(self.limit),
            network=self.network or None,
            secrets={name: {"hosts": hosts.split(",")} for name, hosts in parse_pairs(self.secret).items()},
            workspace_dir=self.workspace_dir,
            image=self.image,
            root=self.root,
            snapshot=self.snapshot,
            profile=self.profile,
        )

    def create(self, connection: ConnectionOptions, timeout: float, added: Options | None = None) -> SandboxAsync:
        """Return a new sandbox, not yet opened; without a mesh it runs on a private one."""
        from sandmesh import SandboxAsync  # noqa: PLC0415 - `mcp` has these options and its own import

        options: Options = {**self.options(), **(added or {})}
        return SandboxAsync(
            sandbox_type=self.template,
            timeout=timeout,
            base_url=connection.address,
            bearer_token=connection.token,
            **options,
        )
