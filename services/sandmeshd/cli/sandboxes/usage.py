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
    elif by_sandbox or sandbox:
        headings = ("SANDBOX", "PROJECT", "USER", "TEMPLATE", *_AMOUNTS)
        rows = [(one.sandbox_id, one.project, one.user_id, one.template, *_cells(one)) for one in report.sandboxes]
        print_table(headings, rows)
    else:
        print_table(("PROJECT", *_AMOUNTS), [(one.project, *_cells(one)) for one in report.projects])


async def _read(connection: ConnectionOptions, since: datetime | None, project: str, sandbox: str) -> UsageReport:
    async with connection.mesh() as mesh:
        return await mesh.usage.list(since=since, project=project, sandbox_id=sandbox, limit=1000)


def _cells(usage: Usage) -> tuple[str, ...]:
    hours = (usage.sandbox_seconds, usage.cpu_seconds, usage.memory_byte_seconds / 2**30)
    return (*(f"{seconds / 3600:.3f}" for seconds in hours), f"{usage.egress_bytes / 2**20:.1f}")
