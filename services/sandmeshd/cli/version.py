"""`sandmesh version`: what is installed here."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed_version

import typer

from sandmeshd.cli.terminal.options import Format, Json, Output
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: sandmesh version -o json")
def version(output: Output = Format.TEXT, as_json: Json = False) -> None:
    """Print the version, and that of Python."""
    number, python = installed_version("sandmesh"), platform.python_version()
    if as_json or output is Format.JSON:
        print_json({"version": number, "python": python, "platform": platform.platform()})
    else:
        typer.echo(f"sandmesh {number} (Python {python})")
