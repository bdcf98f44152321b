"""How results are printed: JSON for programs, tables for people, plain text where output is not a terminal."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol, cast

import typer

from sandmeshd.cli.terminal.options import ListFormat

_CONTROL: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of control and format characters, surrogates, and separators of lines and paragraphs."""


class JsonRecord(Protocol):
    """A record that can be printed as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        ...


def flatten(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value of a record as text, under its dotted path: lease.holder."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from flatten(cast("Mapping[str, Any]", value), f"{path}{name}.")
        else:
            yield f"{path}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_json(value: object) -> None:
    """Print JSON: one line for a program, indented in a terminal."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_ids_or_json(list_format: ListFormat, records: Iterable[JsonRecord], ids: Iterable[str]) -> bool:
    """Print a listing as JSON or ids where the format is one of these, and return whether it was printed."""
    if list_format is ListFormat.JSON:
        print_json([record.to_json() for record in records])
    elif list_format is ListFormat.ID:
        typer.echo("".join(f"{identifier}\n" for identifier in ids), nl=False)
    return list_format in (ListFormat.JSON, ListFormat.ID)


def escape_controls(text: str) -> str:
    """Return a text with what could change more of a terminal than its place in it escaped: \\x1b, \\n, \\u202e."""
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if unicodedata.category(c) in _CONTROL else c for c in text)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings; the first column is never cut. Control characters are escaped."""
    rows = [[escape_controls(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty() and not os.environ.get("FORCE_COLOR"):
        _print_plain([list(headings), *(list(row) for row in rows)])
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0, overflow="fold", min_width=len(heading))
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False, emoji=False).print(table)


def _print_plain(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def format_age(since: datetime) -> str:
    """Return the time since a moment in short form."""
    return format_seconds((datetime.now(UTC) - since).total_seconds())


def format_remaining(until: datetime) -> str:
    """Return the time until a moment in short form."""
    return format_seconds((until - datetime.now(UTC)).total_seconds())


def format_seconds(seconds: float) -> str:
    """Return a duration in short form: 5s, 12m, 3h, 4d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
