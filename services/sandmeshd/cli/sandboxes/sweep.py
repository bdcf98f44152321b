"""Compares what a mesh has on record with what its runtimes have."""

from __future__ import annotations

from typing import Annotated

import typer

from sandmesh._client.connection import Connection
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import connected
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Shape
from sandmeshd.cli.terminal.output import age, plain, print_json, print_table

commands = typer.Typer(rich_markup_mode=None)

SWEEP_SECONDS = 60.0


@commands.command(epilog="Examples: sandmesh sweep --dry-run | sandmesh sweep -o json | jq '.findings[].reason'")
@grouped
def sweep(
    where: Where,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be done, and why.")] = False,
    output: Answer = Shape.TEXT,
) -> None:
    """Put right now what differs between records and runtimes; a mesh does so by itself, after a grace time."""
    swept = run_to_end(_swept(where, dry_run))
    if output is Shape.JSON:
        print_json({"findings": [plain(one) for one in swept.findings], "recovering": swept.recovering})
    else:
        _print(swept, dry_run)


async def ask_for_sweep(mesh: Connection, dry_run: bool) -> pb.SweepMeshResponse:
    """Give what a sweep finds; it does nothing where `dry_run`."""
    request = pb.SweepMeshRequest(dry_run=dry_run)
    return await mesh.ask(lambda stubs: stubs.sandboxes.SweepMesh, request, SWEEP_SECONDS)


async def _swept(where: Where, dry_run: bool) -> pb.SweepMeshResponse:
    async with connected(where) as mesh:
        return await ask_for_sweep(mesh, dry_run)


def _print(swept: pb.SweepMeshResponse, dry_run: bool) -> None:
    if swept.recovering:
        typer.echo("the store came back empty and records are being rebuilt: nothing is made or deleted until then")
        return
    if not swept.findings:
        typer.echo("records and runtimes agree")
        return
    rows = [
        [
            one.sandbox_id or one.node_id,
            one.kind,
            f"would {one.action}" if dry_run else one.action,
            age(one.since_time) if one.HasField("since_time") else "",
            one.reason,
        ]
        for one in swept.findings
    ]
    print_table(["SANDBOX", "FOUND", "ACTION", "SINCE", "REASON"], rows)
