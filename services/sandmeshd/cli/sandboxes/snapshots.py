"""Commands on snapshots of sandboxes."""

from __future__ import annotations

from typing import Annotated

import typer

from sandmesh.mesh import SnapshotInfo, SnapshotList
from sandmeshd.cli.terminal.connection import CALL_SECONDS, ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, ListFormat, ListOutput, Output, SandboxId
from sandmeshd.cli.terminal.output import format_age, print_ids_or_json, print_json, print_table

snapshot_commands = typer.Typer(
    help="Create, list, push and delete snapshots: the files of a sandbox at one moment, from which others start.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@snapshot_commands.command(
    epilog="Example: sandmesh run --snapshot $(sandmesh snapshot create sb_...) -- ls. Nothing runs while it is taken."
)
@grouped
def create(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    ttl: Annotated[
        float | None,
        typer.Option(help="Delete it after so many seconds; by default it stays.", metavar="SECONDS", max=604_800),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Take a snapshot of a sandbox's workspace and home, and print its id."""
    snapshot = run_command(_create(connection, sandbox_id, ttl))
    if output is Format.JSON:
        print_json(snapshot.to_json())
    else:
        typer.echo(snapshot.snapshot_id)


@snapshot_commands.command(name="ls", epilog="Examples: sandmesh snapshot ls | sandmesh snapshot ls -o json")
@grouped
def list_snapshots(connection: ConnectionOptions, output: ListOutput = ListFormat.TABLE) -> None:
    """List snapshots, the oldest first."""
    listed = run_command(_list(connection))
    for node in listed.silent_nodes:
        typer.echo(f"node {node} does not answer: its snapshots are missing here", err=True)
    if not print_ids_or_json(output, listed.snapshots, (snapshot.snapshot_id for snapshot in listed.snapshots)):
        rows = [
            (
                snapshot.snapshot_id,
                snapshot.sandbox_type,
                _megabytes(snapshot.size_bytes),
                format_age(snapshot.created),
                snapshot.sandbox_id,
            )
            for snapshot in listed.snapshots
        ]
        print_table(("SNAPSHOT", "TYPE", "SIZE", "AGE", "SANDBOX"), rows)


@snapshot_commands.command(epilog="Example: sandmesh snapshot rm $(sandmesh snapshot ls -o id)")
@grouped
def rm(
    snapshot_ids: Annotated[
        list[str], typer.Argument(help="The ids that `sandmesh snapshot ls` prints.", metavar="SNAPSHOT...")
    ],
    connection: ConnectionOptions,
    output: Output = Format.TEXT,
) -> None:
    """Delete snapshots; sandboxes that were started from them stay."""
    run_command(_delete(connection, snapshot_ids))
    if output is Format.JSON:
        print_json({"snapshot_ids": snapshot_ids})


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


async def _create(connection: ConnectionOptions, sandbox_id: str, ttl: float | None) -> SnapshotInfo:
    async with connection.mesh(CALL_SECONDS) as mesh:
        return await mesh.snapshots.create(sandbox_id, ttl=ttl)


async def _list(connection: ConnectionOptions) -> SnapshotList:
    async with connection.mesh(CALL_SECONDS) as mesh:
        return await mesh.snapshots.list()


async def _delete(connection: ConnectionOptions, snapshot_ids: list[str]) -> None:
    async with connection.mesh(CALL_SECONDS) as mesh:
        for snapshot_id in snapshot_ids:
            await mesh.snapshots.delete(snapshot_id)
