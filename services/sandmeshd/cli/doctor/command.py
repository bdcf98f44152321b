"""`sandmesh doctor`: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sandmeshd.cli.doctor.findings import Finding, Health
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.exit_codes import FAILED
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(rich_markup_mode=None)

MARKS = {
    Health.GOOD: ("ok", "green"),
    Health.WARNING: ("warn", "yellow"),
    Health.BAD: ("FAIL", "bold red"),
    Health.UNKNOWN: ("-", "dim"),
}


@commands.command(
    epilog="Examples: sandmesh doctor | sandmesh doctor --mesh -o json | jq '.[] | select(.health != \"ok\")'"
)
@grouped
def doctor(
    connection: ConnectionOptions,
    mesh: Annotated[bool, typer.Option("--mesh", help="Check only the mesh: its store, nodes and records.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check this machine, its drivers and the mesh, and print what to do about each problem.

    The exit code is 1 where there is a problem.
    """
    findings = run_command(_check(connection, only_mesh=mesh, show=output is Format.TEXT))
    if output is Format.JSON:
        print_json([asdict(finding) for finding in findings])
    problems = sum(finding.health is Health.BAD for finding in findings)
    if output is Format.TEXT:
        typer.echo(f"\n{problems} problem{'s' if problems != 1 else ''} found." if problems else "\nNo problems found.")
    if problems:
        raise typer.Exit(FAILED)


async def _check(connection: ConnectionOptions, *, only_mesh: bool, show: bool) -> list[Finding]:
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.config_file import find_config  # noqa: PLC0415
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.cli.doctor.machine import check_machine  # noqa: PLC0415
    from sandmeshd.cli.doctor.mesh_health import check_drivers, check_mesh  # noqa: PLC0415
    from sandmeshd.runtime.logs import configure_logging  # noqa: PLC0415

    configure_logging("ERROR")
    settings = read_settings(find_config(None, os.environ, Path.cwd()))
    printer = _Printer() if show else None
    findings: list[Finding] = []

    def add(finding: Finding) -> None:
        findings.append(finding)
        if printer is not None:
            printer.show(finding)

    if not only_mesh:
        for finding in await asyncio.to_thread(lambda: list(check_machine(settings))):
            add(finding)
        async for finding in check_drivers(settings):
            add(finding)
    async for finding in check_mesh(settings, connection):
        add(finding)
    return findings


class _Printer:
    """Prints findings as they arrive, under a heading for each part."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - help and completion need not wait for it

        self._console = Console(highlight=False, soft_wrap=True)
        self._part = ""

    def show(self, finding: Finding) -> None:
        """Print a finding."""
        from rich.text import Text  # noqa: PLC0415 - as above

        if finding.part != self._part:
            self._console.print(Text(f"{'' if not self._part else chr(10)}{finding.part}", "bold"))
            self._part = finding.part
        mark, style = MARKS[finding.health]
        self._console.print(Text.assemble("  ", (f"{mark:<5}", style), f"{finding.name:<20} {finding.seen}"))
        if finding.fix:
            self._console.print(Text.assemble(" " * 28, ("fix: ", "bold"), finding.fix))
