"""How answers are printed: JSON for programs, tables for people, and plain text where nobody looks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.table import Table


def plain(message: Message) -> dict[str, Any]:
    """Give a message as JSON values under the names of its proto."""
    return dict(MessageToDict(message, preserving_proto_field_name=True))


def leaves(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Give every value of a record as text, under the names that lead to it: lease.holder."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from leaves(cast("Mapping[str, Any]", value), f"{path}{name}.")
        else:
            yield f"{path}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_json(value: object) -> None:
    """Print JSON: one line for a program, indented for a person."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings; the first column is never cut."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        _print_plain([list(headings), *(list(row) for row in rows)])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0, overflow="fold", min_width=len(heading))
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _print_plain(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def age(since: Timestamp) -> str:
    """Say how long ago a time was, shortly."""
    return span((datetime.now(UTC) - since.ToDatetime(UTC)).total_seconds())


def until_then(then: Timestamp) -> str:
    """Say how long it is until a time, shortly."""
    return span((then.ToDatetime(UTC) - datetime.now(UTC)).total_seconds())


def span(seconds: float) -> str:
    """Say a time span shortly: 5s, 12m, 3h, 4d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
