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
    running,
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

app.add_typer(up.commands)
app.add_typer(launching.commands)
app.add_typer(running.commands)
app.add_typer(files.commands)
app.add_typer(fleet.commands)
app.add_typer(logs.commands)
app.add_typer(events.commands)
app.add_typer(sweep.commands)
app.add_typer(tokens.commands, name="token")
app.add_typer(certificates.commands)
app.add_typer(building.commands)
app.add_typer(doctor.commands)
app.add_typer(configuring.commands, name="config")
app.add_typer(about.commands)


def main() -> NoReturn:
    """Run the command line."""
    finish(app, "sandmesh")


if __name__ == "__main__":
    main()
