"""`sandmesh`: what a person runs. Each family of commands has a module of its own and one line here."""

from __future__ import annotations

from typing import NoReturn

import typer

from sandmeshd.cli import mcp
from sandmeshd.cli import version as about
from sandmeshd.cli.config import command as configuring
from sandmeshd.cli.doctor import doctor
from sandmeshd.cli.images import build as building
from sandmeshd.cli.mesh import certificates, up
from sandmeshd.cli.run import commands as running
from sandmeshd.cli.run import run as launching
from sandmeshd.cli.sandboxes import events, files, fleet, logs, ports, snapshots, sweep, tokens
from sandmeshd.cli.sandboxes import tools as servers
from sandmeshd.cli.storage import command as storing
from sandmeshd.cli.terminal.exit_codes import finish

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
