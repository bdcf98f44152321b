"""What a mesh of this user would be told, and by whom."""

from __future__ import annotations

import os
from typing import Any, cast

import typer

from sandmeshd.cli.options import Answer, Shape
from sandmeshd.cli.output import print_json, print_table

commands = typer.Typer(rich_markup_mode=None, help="The settings of a mesh on this machine.", no_args_is_help=True)


@commands.callback()
def config() -> None:
    """Read the settings of a mesh on this machine."""


@commands.command(epilog="Examples: sandmesh config show | sandmesh config show -o json")
def show(output: Answer = Shape.TEXT) -> None:
    """Print every setting with its value and where it came from; of secrets only that they are set."""
    rows = _rows()
    if output is Shape.JSON:
        print_json(rows)
    else:
        print_table(("SETTING", "VALUE", "FROM"), [(row["name"], _text(row["value"]), row["source"]) for row in rows])


def _rows() -> list[dict[str, Any]]:
    # Settings know the services, which take a second to import.
    from sandmeshd.cli.environment import EnvironmentSettings, read_settings  # noqa: PLC0415

    plain = read_settings().model_dump(mode="json")
    present = {name.upper() for name in os.environ}
    rows: list[dict[str, Any]] = []
    for name, field in EnvironmentSettings.model_fields.items():
        variable = f"SANDMESH_{name.upper()}"
        source = variable if variable in present else "default"
        row = {"name": name, "value": plain[name], "source": source, "variable": variable, "help": field.description}
        rows.append(row)
    return rows


def _text(value: object) -> str:
    if isinstance(value, list | dict):
        pairs = cast("dict[str, object]", value).items() if isinstance(value, dict) else ()
        parts = [f"{name}={one}" for name, one in pairs] or [str(one) for one in cast("list[object]", value)]
        return ", ".join(parts) or "-"
    return "-" if value in (None, "") else str(value)
