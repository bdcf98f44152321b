"""Commands on snapshots of sandboxes."""

from __future__ import annotations

from typing import Annotated

import typer

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import connected
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Form, Output, SandboxId, Shape
from sandmeshd.cli.terminal.output import age, plain, print_json, print_table

SECONDS = 3000.0
"""A snapshot takes as long as its bytes do."""

snapshot_commands = typer.Typer(
    help="Snapshots: what a sandbox's workspace and home were at one moment, for others to begin with.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@snapshot_commands.command(
    epilog="Example: sandmesh run --snapshot $(sandmesh snapshot create sb_...) -- ls. Nothing runs while it is taken."
)
@grouped
def create(sandbox_id: SandboxId, where: Where, output: Answer = Shape.TEXT) -> None:
    """Take a snapshot of a sandbox, and print its id."""
    made = run_to_end(_created(where, sandbox_id))
    if output is Shape.JSON:
        print_json(plain(made))
    else:
        typer.echo(made.snapshot_id)


@snapshot_commands.command(name="ls", epilog="Examples: sandmesh snapshot ls | sandmesh snapshot ls -o json")
@grouped
def list_snapshots(where: Where, output: Output = Form.TABLE) -> None:
    """List snapshots, the oldest first."""
    found = run_to_end(_listed(where))
    for node in found.silent_nodes:
        typer.echo(f"node {node} does not answer: what it keeps is missing here", err=True)
    if output is Form.JSON:
        print_json([plain(one) for one in found.snapshots])
    elif output is Form.ID:
        typer.echo("".join(f"{one.snapshot_id}\n" for one in found.snapshots), nl=False)
    else:
        rows = [
            [one.snapshot_id, one.template, f"{one.size_bytes / 1e6:.1f} MB", age(one.create_time), one.sandbox_id]
            for one in found.snapshots
        ]
        print_table(("SNAPSHOT", "TYPE", "SIZE", "AGE", "SANDBOX"), rows)


@snapshot_commands.command(epilog="Example: sandmesh snapshot rm $(sandmesh snapshot ls -o id)")
@grouped
def rm(
    snapshot_ids: Annotated[
        list[str], typer.Argument(help="As `sandmesh snapshot ls` names them.", metavar="SNAPSHOT...")
    ],
    where: Where,
    output: Answer = Shape.TEXT,
) -> None:
    """Remove snapshots; sandboxes that began with them go on."""
    run_to_end(_removed(where, snapshot_ids))
    if output is Shape.JSON:
        print_json({"snapshot_ids": snapshot_ids})


async def _created(where: Where, sandbox_id: str) -> pb.Snapshot:
    async with connected(where) as mesh:
        named = pb.GetSandboxRequest(sandbox_id=sandbox_id)
        sandbox = (await mesh.ask(lambda stubs: stubs.sandboxes.GetSandbox, named, SECONDS)).sandbox
        request = pb.CreateSnapshotRequest(sandbox_id=sandbox_id, fencing_token=sandbox.lease.fencing_token)
        return (await mesh.ask(lambda stubs: stubs.sandboxes.CreateSnapshot, request, SECONDS)).snapshot


async def _listed(where: Where) -> pb.ListSnapshotsResponse:
    async with connected(where) as mesh:
        return await mesh.ask(lambda stubs: stubs.sandboxes.ListSnapshots, pb.ListSnapshotsRequest(), SECONDS)


async def _removed(where: Where, snapshot_ids: list[str]) -> None:
    async with connected(where) as mesh:
        for snapshot_id in snapshot_ids:
            request = pb.DeleteSnapshotRequest(snapshot_id=snapshot_id)
            await mesh.ask(lambda stubs: stubs.sandboxes.DeleteSnapshot, request, SECONDS)
