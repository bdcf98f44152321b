"""`sandmeshd agent`: what an image starts as that has this package in place of the agent's files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument

SHARED = Path("/run/sandmesh/agent")
CONFIG = "config"

commands = typer.Typer()


@commands.command(epilog='Example, in a Dockerfile: ENTRYPOINT ["sandmeshd", "agent"]')
def agent(
    directory: Annotated[
        Path, typer.Argument(help="What the driver shares with it alone, and where it says that it is ready.")
    ] = SHARED,
) -> None:
    """Be the agent of a sandbox: PID 1 of a container that a driver makes. It is not for running by hand."""
    if os.getpid() != 1:
        message = "the agent is PID 1 of a sandbox: a driver starts it there, as `sandmeshd driver docker` does"
        raise InvalidArgument(f"{message}, from an image with the entry point `sandmeshd agent`")
    if not (directory / CONFIG).is_file():
        message = f"{directory / CONFIG} is not there: a driver puts it into the container"
        raise InvalidArgument(f"{message}; to run the image by hand, give it another entry point")
    # A program of its own: this one has threads and gRPC by now, and an agent must be able to fork.
    program = [sys.executable, "-I", "-m", "sandmeshd.agent.main", "--container", str(directory)]
    os.execv(sys.executable, program)  # noqa: S606 - no shell is wanted
