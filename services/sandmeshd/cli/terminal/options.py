"""Options that several commands have, and the parsers of their values."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sandmeshd.cli.terminal.completion import complete_sandboxes, complete_templates

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class ListFormat(StrEnum):
    """How a listing is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    ID = "id"


class Format(StrEnum):
    """How a single result is printed."""

    TEXT = "text"
    JSON = "json"


ListOutput = Annotated[ListFormat, typer.Option("--output", "-o", help="How to print the list.")]
Extensions = Annotated[
    list[str] | None,
    typer.Option(
        help="A Python file or module that registers classes of sandboxes; repeatable.", metavar="FILE_OR_MODULE"
    ),
]
Templates = Annotated[
    list[Path] | None, typer.Option(help="A template as a YAML or TOML file; repeatable.", metavar="FILE")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the result.")]
Json = Annotated[bool, typer.Option("--json", hidden=True, help="The same as -o json.")]
Template = Annotated[
    str,
    typer.Option(
        "--template",
        "--type",
        "-t",
        help="The template of the sandbox.",
        autocompletion=complete_templates,
        metavar="NAME",
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds after which it is ended.", metavar="SECONDS")]
SandboxId = Annotated[
    str, typer.Argument(help="The sandbox.", metavar="SANDBOX", autocompletion=complete_sandboxes, show_default=False)
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="A resource limit: memory=512MiB, cpus=0.5, pids=100, file_size=1GiB, disk=2GiB; repeatable.",
        metavar="NAME=VALUE",
    ),
]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", help="Only sandboxes with this label; repeatable.", metavar="KEY=VALUE"),
]
Command = Annotated[
    list[str], typer.Argument(help="The command and its arguments, after --.", metavar="COMMAND...", show_default=False)
]


def parse_limits(entries: list[str] | None) -> dict[str, object] | None:
    """Parse limits as the SDK takes them; None where there are none.

    Raises:
        BadParameter: One has another form, or needs a number and has none.
    """
    limits: dict[str, object] = dict(parse_pairs(entries))
    for name, kind in (("cpus", float), ("pids", int)):
        if name in limits:
            try:
                limits[name] = kind(str(limits[name]))
            except ValueError:
                raise typer.BadParameter(f"{name} must be a number above 0, not {limits[name]!r}") from None
    return limits or None


def parse_pairs(entries: list[str] | None, form: str = "NAME=VALUE") -> dict[str, str]:
    """Parse entries of the form NAME=VALUE.

    Raises:
        BadParameter: One has another form.
    """
    pairs: dict[str, str] = {}
    for entry in entries or ():
        name, separator, value = entry.partition("=")
        if not name or not separator:
            raise typer.BadParameter(f"{entry!r} is not {form}")
        pairs[name] = value
    return pairs


def parse_duration(text: str, option: str, alternatives: str = "") -> int:
    """Return the seconds of a duration like 90s, 10m, 12h, 30d or 2w; `alternatives` ends the error message.

    Raises:
        BadParameter: It is not a duration.
    """
    match = re.fullmatch(r"(\d+)([smhdw])", text)
    if match is None or int(match[1]) == 0:
        raise typer.BadParameter(f"{option} {text!r} is not a duration like 30d, 12h or 90m{alternatives}")
    return int(match[1]) * _UNITS[match[2]]
