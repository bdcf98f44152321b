"""Commands on the sandboxes of a mesh: list, inspect and kill them."""

from __future__ import annotations

from typing import Annotated

import typer

from sandmesh.errors import SandmeshError
from sandmesh.mesh import SandboxInfo
from sandmeshd.cli.terminal.completion import complete_sandboxes
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.exit_codes import exit_code_of, print_error
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Json, Label, ListFormat, ListOutput, Output, SandboxId, parse_pairs
from sandmeshd.cli.terminal.output import (
    flatten,
    format_age,
    format_remaining,
    print_ids_or_json,
    print_json,
    print_table,
)

commands = typer.Typer(rich_markup_mode=None)


@commands.command(
    epilog="Examples: sandmesh ls --label team=red | sandmesh ls -o json | sandmesh kill $(sandmesh ls -o id)"
)
@grouped
def ls(
    connection: ConnectionOptions,
    label: Label = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include those in pools, those that failed or are being deleted.")
    ] = False,
    output: ListOutput = ListFormat.TABLE,
    as_json: Json = False,
) -> None:
    """List sandboxes."""
    listed = run_command(_list(connection, parse_pairs(label, "KEY=VALUE")))
    shown = [sandbox for sandbox in listed if everything or sandbox.in_use]
    list_format = ListFormat.JSON if as_json else output
    if not print_ids_or_json(list_format, shown, (one.sandbox_id for one in shown)):
        _print(shown, wide=list_format is ListFormat.WIDE)


@commands.command(epilog="Example: sandmesh inspect sb_... | jq .enforced")
@grouped
def inspect(sandbox_id: SandboxId, connection: ConnectionOptions, output: Output = Format.JSON) -> None:
    """Print a sandbox's record: its state, lease, limits and what enforces them."""
    record = run_command(_get(connection, sandbox_id)).to_json()
    if output is Format.JSON:
        print_json(record)
    else:
        print_table(("FIELD", "VALUE"), list(flatten(record)))


@commands.command(epilog="Examples: sandmesh kill sb_... | sandmesh kill --label team=red | sandmesh kill --all")
@grouped
def kill(
    connection: ConnectionOptions,
    sandbox_ids: Annotated[
        list[str] | None,
        typer.Argument(help="The sandboxes.", metavar="[SANDBOX]...", autocompletion=complete_sandboxes),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every sandbox in use that you may kill.")] = False,
    label: Label = None,
    output: Output = Format.TEXT,
) -> None:
    """Release sandboxes of any holder, and delete everything in them."""
    if bool(sandbox_ids) + everything + bool(label) != 1:
        raise typer.BadParameter("name sandboxes by their ids, by --label KEY=VALUE, or by --all")
    killed, error = run_command(_kill(connection, sandbox_ids, parse_pairs(label, "KEY=VALUE")))
    if output is Format.JSON:
        print_json({"sandbox_ids": killed})
    else:
        for sandbox_id in killed:
            typer.echo(f"{sandbox_id} is being deleted")
    if error is not None:
        raise typer.Exit(exit_code_of(error))


async def _list(connection: ConnectionOptions, labels: dict[str, str]) -> list[SandboxInfo]:
    async with connection.mesh() as mesh:
        return await mesh.sandboxes.list(labels=labels)


async def _get(connection: ConnectionOptions, sandbox_id: str) -> SandboxInfo:
    async with connection.mesh() as mesh:
        return await mesh.sandboxes.get(sandbox_id)


async def _kill(
    connection: ConnectionOptions, sandbox_ids: list[str] | None, labels: dict[str, str]
) -> tuple[list[str], SandmeshError | None]:
    """Kill every sandbox that can be, and return their ids and the last error."""
    killed: list[str] = []
    last_error: SandmeshError | None = None
    async with connection.mesh() as mesh:
        if not sandbox_ids:
            sandbox_ids = [sandbox.sandbox_id for sandbox in await mesh.sandboxes.list(labels=labels) if sandbox.in_use]
        for sandbox_id in sandbox_ids:
            try:
                await mesh.sandboxes.kill(sandbox_id)
            except SandmeshError as error:
                last_error = error
                print_error(error)
            else:
                killed.append(sandbox_id)
    return killed, last_error


def _print(sandboxes: list[SandboxInfo], *, wide: bool) -> None:
    headings = ["SANDBOX", "TEMPLATE", "STATE", "AGE", "LEASE ENDS", "LABELS"]
    rows = [_row(sandbox) for sandbox in sandboxes]
    if wide:
        headings += ["DRIVER", "NODE", "SESSION", "SLOT", "REASON"]
        extra = (
            [sandbox.driver, sandbox.node_id, sandbox.session_key, sandbox.slot, sandbox.state_reason]
            for sandbox in sandboxes
        )
        rows = [[*row, *more] for row, more in zip(rows, extra, strict=True)]
    print_table(headings, rows)


def _row(one: SandboxInfo) -> list[str]:
    labels = ",".join(f"{name}={value}" for name, value in sorted(one.labels.items()))
    lease = format_remaining(one.lease.expires) if one.lease is not None else "in a pool"
    return [one.sandbox_id, one.template, one.state, format_age(one.created), lease, labels]
