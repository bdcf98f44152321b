"""`sandmesh events`: what happened to sandboxes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sandmesh.mesh import SandboxEvent
from sandmeshd.cli.terminal.completion import complete_sandboxes
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import escape_controls

commands = typer.Typer(rich_markup_mode=None)

BEFORE_ALL = "0-0"


@commands.command(epilog="Examples: sandmesh events sb_... | sandmesh events -f | sandmesh events -o json --tail 1000")
@grouped
def events(
    connection: ConnectionOptions,
    sandbox_id: Annotated[
        str | None,
        typer.Argument(
            help="The sandbox; by default every sandbox.", metavar="[SANDBOX]", autocompletion=complete_sandboxes
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events.")] = False,
    tail: Annotated[int, typer.Option(min=1, max=1000, help="How many of the newest.", metavar="COUNT")] = 100,
    output: Output = Format.TEXT,
) -> None:
    """Print the events of sandboxes, deleted ones included: a line each, JSON lines with -o json."""
    run_command(_print_events(connection, sandbox_id, tail, follow, output))


async def _print_events(
    connection: ConnectionOptions, sandbox_id: str | None, tail: int, follow: bool, output: Format
) -> None:
    async with connection.mesh() as mesh:
        listed = await mesh.events.list(sandbox_id, limit=tail)
        for event in listed:
            _print(event, output)
        if follow:
            after = listed[-1].event_id if listed else BEFORE_ALL
            async for event in mesh.events.follow(sandbox_id, after=after):
                _print(event, output)


def _print(event: SandboxEvent, output: Format) -> None:
    if output is Format.JSON:
        typer.echo(json.dumps(event.to_json(), ensure_ascii=False))
        return
    when = event.time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    took = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in event.phases.items())
    reason = "".join(f"  {words}" for words in (event.reason, took) if words)
    typer.echo(escape_controls(f"{when}  {event.sandbox_id}  {event.kind:<9}  by {event.actor}{reason}"))
