"""`sandmesh storage`: local directories, to and from the storage of workspaces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(
    rich_markup_mode=None,
    help="Copy directories to and from the storage of workspaces; for those who have its keys.",
    no_args_is_help=True,
)


@dataclass(frozen=True)
class WorkspaceOptions:
    """A saved directory, and the settings that name its storage."""

    name: Annotated[str | None, typer.Option("--name", help="The name that it is saved under.", metavar="NAME")] = None
    session: Annotated[
        str | None, typer.Option("--session", help="The workspace of this session, instead of a name.", metavar="ID")
    ] = None
    user: Annotated[str, typer.Option("--user", help="The session's user.", metavar="ID")] = "default"
    kind: Annotated[str, typer.Option("--type", help="The type of the session's sandbox.", metavar="TYPE")] = "base"
    config: Annotated[
        Path | None, typer.Option("--config", help="A file of settings, as for `up`.", metavar="FILE")
    ] = None

    def check(self) -> None:
        """Require exactly one of a name and a session.

        Raises:
            BadParameter: There is none, or both.
        """
        if (self.name is None) == (self.session is None):
            raise typer.BadParameter("use either --name or --session")


@commands.callback()
def storage() -> None:
    """Copy directories to and from the storage of workspaces."""


@commands.command(epilog="Example: sandmesh storage upload ./project --name projects/demo")
@grouped
def upload(
    folder: Annotated[Path, typer.Argument(help="The directory.")],
    workspace: WorkspaceOptions,
    output: Output = Format.TEXT,
) -> None:
    """Save a directory; as a session's workspace only where the session has none saved."""
    workspace.check()
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.storage.transfer import upload_directory  # noqa: PLC0415

    saved = run_command(upload_directory(workspace, folder))
    if output is Format.JSON:
        print_json({"bytes": saved.size, "uploaded": saved.uploaded})
    else:
        typer.echo(f"Saved: {saved.size:,} bytes, of which {saved.uploaded:,} were new.")


@commands.command(epilog="Example: sandmesh storage download ./copy --session s-1 --user ann")
@grouped
def download(
    folder: Annotated[Path, typer.Argument(help="The directory to create.")],
    workspace: WorkspaceOptions,
    output: Output = Format.TEXT,
) -> None:
    """Copy a saved directory into a new one, whole or not at all."""
    workspace.check()
    from sandmeshd.cli.storage.transfer import download_directory  # noqa: PLC0415 - as above

    run_command(download_directory(workspace, folder))
    if output is Format.JSON:
        print_json({"directory": str(folder)})
