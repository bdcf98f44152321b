"""Directories of this machine to and from the storage that the settings name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Shape
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(
    rich_markup_mode=None,
    help="Directories in the storage of workspaces, for whoever has its keys.",
    no_args_is_help=True,
)


@dataclass(frozen=True)
class Which:
    """What is meant in which storage."""

    name: Annotated[str | None, typer.Option("--name", help="What it is saved under, any text.", metavar="NAME")] = None
    session: Annotated[
        str | None, typer.Option("--session", help="Instead of a name: the workspace of this session.", metavar="ID")
    ] = None
    user: Annotated[str, typer.Option("--user", help="Whose session.", metavar="ID")] = "default"
    kind: Annotated[str, typer.Option("--type", help="The session's sandbox of this type.", metavar="TYPE")] = "base"
    config: Annotated[
        Path | None, typer.Option("--config", help="A file with settings, as for `up`.", metavar="FILE")
    ] = None

    def check(self) -> None:
        """Refuse what means nothing or two things."""
        if (self.name is None) == (self.session is None):
            raise typer.BadParameter("give either --name or --session")


@commands.callback()
def storage() -> None:
    """Put directories into the storage of workspaces, and fetch them."""


@commands.command(epilog="Example: sandmesh storage upload ./project --name projects/demo")
@grouped
def upload(
    folder: Annotated[Path, typer.Argument(help="The directory.")], which: Which, output: Answer = Shape.TEXT
) -> None:
    """Save a directory; as a session's workspace only where none of its sandboxes was saved."""
    which.check()
    # Settings know the services, which take a second to import.
    from sandmeshd.cli.storage.transfer import put  # noqa: PLC0415

    saved = run_to_end(put(which, folder))
    if output is Shape.JSON:
        print_json({"bytes": saved.size, "uploaded": saved.uploaded})
    else:
        typer.echo(f"Saved: {saved.size:,} bytes, of which {saved.uploaded:,} were not there yet.")


@commands.command(epilog="Example: sandmesh storage download ./copy --session s-1 --user ann")
@grouped
def download(
    folder: Annotated[Path, typer.Argument(help="The directory to make.")], which: Which, output: Answer = Shape.TEXT
) -> None:
    """Fetch what is saved into a directory, whole or not at all."""
    which.check()
    from sandmeshd.cli.storage.transfer import fetch  # noqa: PLC0415 - as above

    run_to_end(fetch(which, folder))
    if output is Shape.JSON:
        print_json({"directory": str(folder)})
