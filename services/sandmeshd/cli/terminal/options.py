"""Options that several commands have, and what reads their texts."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sandmeshd.cli.terminal.completion import complete_sandboxes, complete_templates

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Form(StrEnum):
    """How a listing is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    ID = "id"


class Shape(StrEnum):
    """How one answer is printed."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Form, typer.Option("--output", "-o", help="How to print the list.")]
Extensions = Annotated[
    list[str] | None,
    typer.Option(
        help="A Python file or module that registers classes of sandboxes; repeatable.", metavar="FILE_OR_MODULE"
    ),
]
Templates = Annotated[
    list[Path] | None, typer.Option(help="A template as a YAML or TOML file; repeatable.", metavar="FILE")
]
Answer = Annotated[Shape, typer.Option("--output", "-o", help="How to print the answer.")]
Json = Annotated[bool, typer.Option("--json", hidden=True, help="The same as -o json.")]
Template = Annotated[
    str,
    typer.Option(
        "--template",
        "--type",
        "-t",
        help="What the sandbox is made from.",
        autocompletion=complete_templates,
        metavar="NAME",
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds until what runs is ended.", metavar="SECONDS")]
SandboxId = Annotated[
    str, typer.Argument(help="The sandbox.", metavar="SANDBOX", autocompletion=complete_sandboxes, show_default=False)
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="What it may use: memory=512MiB, cpus=0.5, pids=100, file_size=1GiB, disk=2GiB; repeatable.",
        metavar="NAME=VALUE",
    ),
]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", help="Only those with this label; repeatable.", metavar="KEY=VALUE"),
]
Command = Annotated[
    list[str], typer.Argument(help="The command and its arguments, after --.", metavar="COMMAND...", show_default=False)
]


def limits(entries: list[str] | None) -> dict[str, object] | None:
    """Read limits as the SDK takes them; None where there are none.

    Raises:
        BadParameter: One has another form, or needs a number and has none.
    """
    read: dict[str, object] = dict(pairs(entries))
    for name, kind in (("cpus", float), ("pids", int)):
        if name in read:
            try:
                read[name] = kind(str(read[name]))
            except ValueError:
                raise typer.BadParameter(f"{name} is a number above 0, not {read[name]!r}") from None
    return read or None


def pairs(entries: list[str] | None, form: str = "NAME=VALUE") -> dict[str, str]:
    """Read entries of the form NAME=VALUE.

    Raises:
        BadParameter: One has another form.
    """
    read: dict[str, str] = {}
    for entry in entries or ():
        name, found, value = entry.partition("=")
        if not name or not found:
            raise typer.BadParameter(f"{entry!r} is not {form}")
        read[name] = value
    return read


def read_span(text: str, option: str, more: str = "") -> int:
    """Give the seconds of a time like 90s, 10m, 12h, 30d or 2w; `more` is said of what else may be stated.

    Raises:
        BadParameter: It is none.
    """
    found = re.fullmatch(r"(\d+)([smhdw])", text)
    if found is None or int(found[1]) == 0:
        raise typer.BadParameter(f"{option} {text!r} is no time like 30d, 12h or 90m{more}")
    return int(found[1]) * _UNITS[found[2]]
