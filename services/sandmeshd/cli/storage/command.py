"""`sandmesh storage`: local directories, to and from the storage of workspaces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json
from sandmeshd.storage import SavedWorkspace, SaveSize, StorageSettings, open_folders

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
    from sandmeshd.cli.storage.command import upload_directory  # noqa: PLC0415

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
    from sandmeshd.cli.storage.command import download_directory  # noqa: PLC0415 - as above

    run_command(download_directory(workspace, folder))
    if output is Format.JSON:
        print_json({"directory": str(folder)})


async def upload_directory(workspace: WorkspaceOptions, folder: Path) -> SaveSize:
    """Save a directory and return what was saved.

    Raises:
        InvalidArgument: The settings name no storage.
    """
    async with open_folders(_storage_settings(workspace)) as folders:
        return await folders.upload_folder(folder, _saved_name(workspace))


async def download_directory(workspace: WorkspaceOptions, folder: Path) -> None:
    """Copy a saved directory into a new one.

    Raises:
        InvalidArgument: The settings name no storage.
    """
    async with open_folders(_storage_settings(workspace)) as folders:
        await folders.download_folder(_saved_name(workspace), folder)


def _storage_settings(workspace: WorkspaceOptions) -> StorageSettings:
    found = read_settings(workspace.config).storage
    if found is None:
        fix = "set SANDMESH_STORAGE_FOLDER, or SANDMESH_FILE_SYSTEM and its bucket, or name a file that does (--config)"
        raise InvalidArgument(f"the settings name no storage: {fix}", {"fix": fix})
    return found


def _saved_name(workspace: WorkspaceOptions) -> str | SavedWorkspace:
    if workspace.session is None:
        return workspace.name or ""
    return SavedWorkspace(workspace.user, workspace.session, workspace.kind)
