"""What works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from sandmeshd.cli.doctor.findings import Finding, Health
from sandmeshd.cli.terminal.exit_codes import FAILED
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Shape
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
    where: Where,
    mesh: Annotated[bool, typer.Option("--mesh", help="Only the mesh: its store, nodes and records.")] = False,
    output: Answer = Shape.TEXT,
) -> None:
    """Say which drivers work here and why others do not, each with its fix, and how the mesh is.

    The exit code is 1 where something stands in the way.
    """
    found: list[Finding] = run_to_end(_found(where, only_mesh=mesh, show=output is Shape.TEXT))
    if output is Shape.JSON:
        print_json([asdict(finding) for finding in found])
    problems = sum(finding.health is Health.BAD for finding in found)
    if output is Shape.TEXT:
        typer.echo(f"\n{problems} problem{'s' if problems != 1 else ''} found." if problems else "\nNo problems found.")
    if problems:
        raise typer.Exit(FAILED)


async def _found(where: Where, *, only_mesh: bool, show: bool) -> list[Finding]:
    # Drivers and services take a second to import, which other commands need not wait for.
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.cli.doctor.machine import look_at_machine  # noqa: PLC0415
    from sandmeshd.cli.doctor.mesh_health import look_at_drivers, look_at_mesh  # noqa: PLC0415
    from sandmeshd.runtime.logs import configure_logging  # noqa: PLC0415

    configure_logging("ERROR")
    settings = read_settings()
    printer = _Printer() if show else None
    found: list[Finding] = []

    def take(finding: Finding) -> None:
        found.append(finding)
        if printer is not None:
            printer.show(finding)

    if not only_mesh:
        for finding in await asyncio.to_thread(lambda: list(look_at_machine(settings))):
            take(finding)
        async for finding in look_at_drivers(settings):
            take(finding)
    async for finding in look_at_mesh(settings, where):
        take(finding)
    return found


class _Printer:
    """Prints findings as they come, under a heading for each part."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._part = ""

    def show(self, finding: Finding) -> None:
        """Print one."""
        if finding.part != self._part:
            self._console.print(Text(f"{'' if not self._part else chr(10)}{finding.part}", "bold"))
            self._part = finding.part
        mark, style = MARKS[finding.health]
        self._console.print(Text.assemble("  ", (f"{mark:<5}", style), f"{finding.name:<20} {finding.seen}"))
        if finding.fix:
            self._console.print(Text.assemble(" " * 28, ("fix: ", "bold"), finding.fix))
