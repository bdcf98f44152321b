"""`sandmesh mcp install` and `uninstall`: the change is shown first, and other entries keep their bytes."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.mcp_clients import entries
from sandmeshd.cli.mcp_clients.places import CLIENTS, McpHost, settings_path
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json

ClientName = Annotated[str, typer.Argument(help=f"One of {', '.join(CLIENTS)}.", metavar="CLIENT")]


@dataclass(frozen=True)
class ChangeOptions:
    """The entry that is changed, and how."""

    name: Annotated[str, typer.Option(help="The entry's name in the client's settings.", metavar="NAME")] = "sandbox"
    file: Annotated[
        Path | None, typer.Option(help="The settings file; by default the client's of this user.", metavar="FILE")
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write the file without a question.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change, and write nothing.")] = False


def add_commands(app: typer.Typer, check: Callable[[list[str]], None]) -> None:
    """Add both commands to those of `sandmesh mcp`; `check` refuses options that the adapter does not have."""

    @app.command(epilog="Examples: sandmesh mcp install cursor | sandmesh mcp install codex -- --type filesystem")
    @grouped
    def install(  # pyright: ignore[reportUnusedFunction]  # Typer has it
        client: ClientName,
        change: ChangeOptions,
        options: Annotated[
            list[str] | None,
            typer.Argument(help="Options of `sandmesh mcp` for the entry, after --.", metavar="OPTIONS"),
        ] = None,
        output: Output = Format.TEXT,
    ) -> None:
        """Add the adapter to the settings of an MCP client, after showing the change.

        Other entries keep their bytes. A file that is not JSON (Codex: TOML) is left as it is.
        """
        check(options or [])
        chosen = _client(client)
        entry = chosen.entry(_program(), ["mcp", *(options or [])])
        _change(chosen, change, output, lambda text: entries.added(chosen, text, change.name, entry))

    @app.command(epilog="Example: sandmesh mcp uninstall cursor")
    @grouped
    def uninstall(  # pyright: ignore[reportUnusedFunction]  # as above
        client: ClientName, change: ChangeOptions, output: Output = Format.TEXT
    ) -> None:
        """Remove the adapter from the settings of an MCP client, after showing the change."""
        chosen = _client(client)
        _change(chosen, change, output, lambda text: entries.removed(chosen, text, change.name))


def _client(name: str) -> McpHost:
    if name not in CLIENTS:
        raise typer.BadParameter(f"{name!r} is not a client that sandmesh knows: one of {', '.join(CLIENTS)}")
    return CLIENTS[name]


def _program() -> str:
    """Return this program's own path: a client that is started from a desktop has another PATH than a shell."""
    own = Path(sys.executable).parent / "sandmesh"
    return str(own) if own.exists() else shutil.which("sandmesh") or "sandmesh"


def _change(client: McpHost, options: ChangeOptions, output: Format, edit: Callable[[str], str]) -> None:
    """Show what an edit changes in a client's settings, and write them."""
    path = options.file or settings_path(client, os.environ)
    before = entries.read_settings(path)
    try:
        after = edit(before)
    except InvalidArgument as error:
        message = f"{path} is left as it is: {error.message}; correct it there, or name another file by --file"
        raise InvalidArgument(message, {"file": str(path)}) from None
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm=""))
    changed = after != before and not options.dry_run
    if output is Format.TEXT:
        typer.echo("\n".join(lines) or f"{path}: nothing to change")
    if changed:
        if not options.yes:
            _confirm(path)
        entries.write_settings(path, before, after)
        typer.echo(f"{path} is written: restart {client.title}", err=True)
    if output is Format.JSON:
        print_json({"client": client.name, "file": str(path), "changed": changed, "diff": lines})


def _confirm(path: Path) -> None:
    if not sys.stdin.isatty():
        raise InvalidArgument(f"{path} is left as it is: pass --yes to write it without a question", {"fix": "--yes"})
    typer.confirm(f"Write {path}?", abort=True, err=True)
