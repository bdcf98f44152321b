"""`runtime-sandbox-server`: `sandmesh up` at the port where clients of AgentScope Runtime look for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from sandmeshd.cli.mesh.up import UpOptions
from sandmeshd.cli.terminal.options import Extensions
from sandmeshd.cli.terminal.single_command import single_command

DEFAULTS = {"listen": ("127.0.0.1:8000",)}


def server(
    config: Annotated[
        Path | None,
        typer.Option(help="A file of settings, one NAME=VALUE a line, by default a .env in the working directory."),
    ] = None,
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None,
        typer.Option(help="The lowest level that is logged."),
    ] = None,
    extension: Extensions = None,
) -> None:
    """Run a mesh that serves AgentScope Runtime's SDK, by default at http://127.0.0.1:8000, until Ctrl-C.

    Clients of gRPC reach it there too where that address has no TLS, and at the other address that it prints.
    """
    # The services take a second to import, which help need not wait for.
    from sandmeshd.cli.agentscope.served import serve_old_paths, with_door  # noqa: PLC0415
    from sandmeshd.cli.config.config_file import find_config  # noqa: PLC0415
    from sandmeshd.cli.mesh.start import start_in_foreground  # noqa: PLC0415

    serve_old_paths(extension)

    level = "ERROR" if log_level == "CRITICAL" else log_level
    file = find_config(config, os.environ, Path.cwd())
    settings = {**UpOptions(config=file, extension=extension).settings(), "log_level": level}
    start_in_foreground(settings, None, as_json=False, defaults=DEFAULTS, adapt=with_door)


app = single_command(server, epilog="Example: runtime-sandbox-server --config sandbox.env --extension my_sandbox.py")
