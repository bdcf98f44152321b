"""`sandmesh usage`: what projects and sandboxes had."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from sandmesh.mesh import Usage, UsageReport
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, parse_duration
from sandmeshd.cli.terminal.output import print_json, print_table

_AMOUNTS = ("SANDBOX HOURS", "CPU HOURS", "GIB HOURS", "EGRESS MIB")
_COST = "COST"

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Examples: sandmesh usage | sandmesh usage --since 30d -o json | sandmesh usage --by-sandbox")
@grouped
def usage(
    connection: ConnectionOptions,
    project: Annotated[str, typer.Option(help="Only of this project.", metavar="NAME", show_default=False)] = "",
    sandbox: Annotated[str, typer.Option(help="Only of this sandbox.", metavar="SANDBOX", show_default=False)] = "",
    since: Annotated[
        str,
        typer.Option(
            help="Only of the last while, like 30d, in whole days of UTC.", metavar="TIME", show_default=False
        ),
    ] = "",
    by_sandbox: Annotated[bool, typer.Option("--by-sandbox", help="Print a line for each sandbox.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Print what projects and sandboxes had: hours, what was reserved meanwhile, and egress; for administrators."""
    oldest = datetime.now(UTC) - timedelta(seconds=parse_duration(since, "--since")) if since else None
    report = run_command(_read(connection, oldest, project, sandbox))
    if output is Format.JSON:
        print_json(report.to_json())
        return
    listed = report.sandboxes if by_sandbox or sandbox else report.projects
    # Most meshes rent nothing.
    costs = any(one.cost for one in listed)
    amounts = (*_AMOUNTS, _COST) if costs else _AMOUNTS
    cells = [(*_cells(one), f"{one.cost:.4f}") if costs else _cells(one) for one in listed]
    if by_sandbox or sandbox:
        headings: tuple[str, ...] = ("SANDBOX", "PROJECT", "USER", "TEMPLATE")
        names = [(one.sandbox_id, one.project, one.user_id, one.template) for one in listed]
        rows = [(*name, *amount) for name, amount in zip(names, cells, strict=True)]
    else:
        headings, rows = ("PROJECT",), [(one.project, *amount) for one, amount in zip(listed, cells, strict=True)]
    print_table((*headings, *amounts), rows)


async def _read(connection: ConnectionOptions, since: datetime | None, project: str, sandbox: str) -> UsageReport:
    async with connection.mesh() as mesh:
        return await mesh.usage.list(since=since, project=project, sandbox_id=sandbox, limit=1000)


def _cells(usage: Usage) -> tuple[str, ...]:
    hours = (usage.sandbox_seconds, usage.cpu_seconds, usage.memory_byte_seconds / 2**30)
    return (*(f"{seconds / 3600:.3f}" for seconds in hours), f"{usage.egress_bytes / 2**20:.1f}")
