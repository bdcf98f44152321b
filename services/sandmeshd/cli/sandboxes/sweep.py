"""`sandmesh sweep`: compare the records of a mesh with its runtimes."""

from __future__ import annotations

from typing import Annotated

import typer

from sandmesh.mesh import SweepReport
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import format_age, print_json, print_table

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Examples: sandmesh sweep --dry-run | sandmesh sweep -o json | jq '.findings[].reason'")
@grouped
def sweep(
    connection: ConnectionOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only print what would be done, and why.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Fix differences between records and runtimes now; a mesh does so by itself, after a grace time."""
    report = run_command(_sweep(connection, dry_run))
    if output is Format.JSON:
        print_json({"findings": [finding.to_json() for finding in report.findings], "recovering": report.recovering})
    else:
        _print(report, dry_run)


async def _sweep(connection: ConnectionOptions, dry_run: bool) -> SweepReport:
    async with connection.mesh() as mesh:
        return await mesh.sweep(dry_run=dry_run)


def _print(report: SweepReport, dry_run: bool) -> None:
    if report.recovering:
        typer.echo("the store came back empty and records are being rebuilt: nothing is created or deleted until then")
        return
    if not report.findings:
        typer.echo("records and runtimes agree")
        return
    rows = [
        [
            finding.sandbox_id or finding.node_id,
            finding.kind,
            f"would {finding.action}" if dry_run else finding.action,
            format_age(finding.since) if finding.since is not None else "",
            finding.reason,
        ]
        for finding in report.findings
    ]
    print_table(["SANDBOX", "FOUND", "ACTION", "SINCE", "REASON"], rows)
