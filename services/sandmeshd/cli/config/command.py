"""Commands for the settings of a mesh: `sandmesh config show`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json, print_table

commands = typer.Typer(
    rich_markup_mode=None, help="Print the settings of a mesh on this machine.", no_args_is_help=True
)


@commands.callback()
def config() -> None:
    """Print the settings of a mesh on this machine."""


@commands.command(epilog="Examples: sandmesh config show | sandmesh config show --config mesh.env -o json")
def show(
    config: Annotated[Path | None, typer.Option(help="A file with settings, as for `up`.", metavar="FILE")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Print every setting with its value and where it came from; of secrets only that they are set."""
    rows, notes = _rows(_find(config))
    if output is Format.JSON:
        print_json(rows)
    else:
        print_table(("SETTING", "VALUE", "FROM"), [(row["name"], _text(row["value"]), row["source"]) for row in rows])
    for note in notes:
        typer.echo(note, err=True)


def _find(config: Path | None) -> Path | None:
    from sandmeshd.cli.config.config_file import find_config  # noqa: PLC0415 - as below

    return find_config(config, os.environ, Path.cwd())


def _rows(config: Path | None) -> tuple[list[dict[str, Any]], list[str]]:
    # Settings know the services, which take a second to import.
    from sandmeshd.cli.config.environment import read_notes, read_remarks, read_with_sources  # noqa: PLC0415
    from sandmeshd.mesh.driver import plain_values  # noqa: PLC0415

    settings, sources = read_with_sources(config)
    rows = [
        {
            "name": one.setting,
            "value": value,
            "source": sources.get(one.setting, "default"),
            "variable": one.name,
            "help": one.field.description,
        }
        for one, value in plain_values(settings)
    ]
    unused = read_notes(settings, config).items()
    notes = [f"{name} is set to its default and has no effect here: {why}" for name, why in unused]
    return rows, notes + [f"{each.event}: {', '.join(each.facts.values())}" for each in read_remarks(config)]


def _text(value: object) -> str:
    if isinstance(value, list | dict):
        pairs = cast("dict[str, object]", value).items() if isinstance(value, dict) else ()
        parts = [f"{name}={one}" for name, one in pairs] or [str(one) for one in cast("list[object]", value)]
        return ", ".join(parts) or "-"
    return "-" if value in (None, "") else str(value)
