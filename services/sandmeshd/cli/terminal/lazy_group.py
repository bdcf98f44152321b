"""A group whose commands are imported when they run: help and other commands do not wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class Entry:
    """A command of a group, or a group of commands.

    `summary` is the first sentence of its help. The commands are those of `typer_name` in `module`; a group has none of
    its own name there.
    """

    name: str
    module: str
    summary: str
    heading: str = "Commands"
    typer_name: str = "commands"


class LazyCommand(TyperCommand):
    """Stands for a command, and imports it when it is parsed."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, short_help=entry.summary, rich_markup_mode=None)
        self.entry = entry

    def load(self) -> Any:
        """Import the command and return it."""
        typer_app: typer.Typer = getattr(import_module(self.entry.module), self.entry.typer_name)
        group = typer.main.get_group(typer_app)
        return group.commands.get(self.entry.name, group)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments of the imported command."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class LazyGroup(TyperGroup):
    """A group of commands under headings. A subclass has the entries."""

    entries: Sequence[Entry] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {entry.name: LazyCommand(entry) for entry in self.entries}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each heading, with their summaries."""
        width = max(len(entry.name) for entry in self.entries)
        for heading in dict.fromkeys(entry.heading for entry in self.entries):
            rows = [
                (entry.name.ljust(width), self.commands[entry.name].get_short_help_str(formatter.width - width - 6))
                for entry in self.entries
                if entry.heading == heading
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)
