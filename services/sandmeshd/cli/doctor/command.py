"""`sandmesh doctor`: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.cli.doctor.findings import GROUPS, Finding, Health
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
    apparmor_profile: Annotated[
        bool,
        typer.Option("--apparmor-profile", help="Print a profile that lets bwrap create user namespaces on Ubuntu."),
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check this machine, its drivers and the mesh, and print what to do about each problem.

    It prints problems, what works, limits of this machine, and what is optional.
    The exit code is 1 where there is a problem.
    """
    if apparmor_profile:
        typer.echo(_profile(), nl=False)
        return
    findings = run_command(_check(connection, only_mesh=mesh))
    if output is Format.JSON:
        print_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    problems = sum(finding.health is Health.BAD for finding in findings)
    if output is Format.TEXT:
        typer.echo(f"\n{problems} problem{'s' if problems != 1 else ''} found." if problems else "\nNo problems found.")
    if problems:
        raise typer.Exit(FAILED)


def _profile() -> str:
    from sandmeshd.drivers.bubblewrap.executable import FIX, find_installed  # noqa: PLC0415 - as in `_check`
    from sandmeshd.drivers.bubblewrap.probe import make_profile  # noqa: PLC0415 - as in `_check`

    program = find_installed()
    if program is None:
        raise RuntimeUnavailable(f"bwrap is not installed: {FIX}", {"fix": FIX})
    try:
        return make_profile(program)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


async def _check(connection: ConnectionOptions, *, only_mesh: bool) -> list[Finding]:
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.config_file import find_config  # noqa: PLC0415
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.cli.doctor.machine import check_machine  # noqa: PLC0415
    from sandmeshd.cli.doctor.mesh_health import check_drivers, check_mesh  # noqa: PLC0415
    from sandmeshd.runtime.telemetry.logs import configure_logging  # noqa: PLC0415

    configure_logging("ERROR")
    settings = read_settings(find_config(None, os.environ, Path.cwd()))
    findings: list[Finding] = []
    if not only_mesh:
        findings += await asyncio.to_thread(lambda: list(check_machine(settings)))
        findings += [finding async for finding in check_drivers(settings)]
    return findings + [finding async for finding in check_mesh(settings, connection)]


def _show(findings: list[Finding]) -> None:
    """Print findings by group: problems, what works, limits of the machine, and what is optional."""
    from rich.console import Console  # noqa: PLC0415 - help and completion need not wait for it
    from rich.text import Text  # noqa: PLC0415 - as above

    console = Console(highlight=False, soft_wrap=True)
    groups = {health: [finding for finding in findings if finding.health is health] for health in GROUPS}
    for number, (health, found) in enumerate((health, found) for health, found in groups.items() if found):
        console.print(Text(f"{chr(10) if number else ''}{GROUPS[health]}", "bold"))
        mark, style = MARKS[health]
        for one in found:
            console.print(Text.assemble("  ", (f"{mark:<5}", style), f"{one.name:<20} {one.seen}"))
            if one.fix:
                console.print(Text.assemble(" " * 28, ("fix: ", "bold"), one.fix))
