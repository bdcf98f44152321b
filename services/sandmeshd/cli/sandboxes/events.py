"""What happened to sandboxes."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Annotated

import typer

from sandmesh._client.connection import Connection
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.shared.wire_errors import translated
from sandmeshd.cli.terminal.completion import complete_sandboxes
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import SECONDS, connected
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Shape
from sandmeshd.cli.terminal.output import plain

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Examples: sandmesh events sb_... | sandmesh events -f | sandmesh events -o json --tail 1000")
@grouped
def events(
    where: Where,
    sandbox_id: Annotated[
        str | None,
        typer.Argument(
            help="The sandbox; none: every sandbox.", metavar="[SANDBOX]", autocompletion=complete_sandboxes
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens.")] = False,
    tail: Annotated[int, typer.Option(min=1, max=1000, help="The newest so many.", metavar="COUNT")] = 100,
    output: Answer = Shape.TEXT,
) -> None:
    """Print what happened to sandboxes, also to those that are gone: a line each, JSON lines with -o json."""
    run_to_end(_printed(where, pb.ListEventsRequest(sandbox_id=sandbox_id or "", page_size=tail), follow, output))


async def _printed(where: Where, request: pb.ListEventsRequest, follow: bool, shape: Shape) -> None:
    async with connected(where) as mesh:
        found = (await mesh.ask(lambda stubs: stubs.sandboxes.ListEvents, request, SECONDS)).events
        for event in found:
            _print(event, shape)
        if follow:
            await _follow(mesh, request.sandbox_id, found[-1].event_id if found else "0-0", shape)


async def _follow(mesh: Connection, sandbox_id: str, after: str, shape: Shape) -> None:
    request = pb.WatchSandboxesRequest(sandbox_id=sandbox_id, after_event_id=after)
    with translated():
        async for response in mesh.follow(lambda stubs: stubs.sandboxes.WatchSandboxes, request):
            _print(response.event, shape)


def _print(event: pb.SandboxEvent, shape: Shape) -> None:
    if shape is Shape.JSON:
        typer.echo(json.dumps(plain(event), ensure_ascii=False))
        return
    when = event.time.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    reason = f"  {event.reason}" if event.reason else ""
    typer.echo(f"{when}  {event.sandbox_id}  {event.kind:<9}  by {event.actor}{reason}")
