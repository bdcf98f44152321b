"""`sandmesh`: what a person runs. Each family of commands has a module of its own and one line here."""

from __future__ import annotations

from typing import NoReturn

import typer

from sandmeshd.cli import (
    about,
    building,
    certificates,
    configuring,
    doctor,
    events,
    files,
    fleet,
    launching,
    logs,
    mcp,
    ports,
    running,
    servers,
    snapshots,
    storing,
    sweep,
    tokens,
    up,
)
from sandmeshd.cli.endings import finish

app = typer.Typer(
    help="Isolated computers on demand. `sandmesh up` runs a mesh on this machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

MESH, SANDBOXES, MACHINE = "A mesh", "Sandboxes", "This machine"


def add(family: typer.Typer, panel: str, name: str | None = None) -> None:
    """Add a family's commands, shown under a heading in the help."""
    for command in family.registered_commands:
        command.rich_help_panel = panel
    app.add_typer(family, name=name, rich_help_panel=panel)


add(up.commands, MESH)
add(launching.commands, SANDBOXES)
add(running.commands, SANDBOXES)
add(files.commands, SANDBOXES)
add(fleet.commands, SANDBOXES)
add(logs.commands, SANDBOXES)
add(events.commands, SANDBOXES)
add(servers.commands, SANDBOXES)
add(servers.server_commands, SANDBOXES, "mcp-servers")
add(mcp.commands, SANDBOXES)
add(ports.commands, SANDBOXES)
add(ports.port_commands, SANDBOXES, "ports")
add(snapshots.snapshot_commands, SANDBOXES, "snapshot")
add(sweep.commands, MESH)
add(tokens.commands, MESH, "token")
add(certificates.commands, MESH)
add(building.commands, MACHINE)
add(doctor.commands, MACHINE)
add(configuring.commands, MACHINE, "config")
add(storing.commands, MACHINE, "storage")
add(about.commands, MACHINE)


def main() -> NoReturn:
    """Run the command line."""
    finish(app, "sandmesh")


if __name__ == "__main__":
    main()
