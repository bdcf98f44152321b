"""`sandmeshd agent`: the entry point of images that have this package instead of the agent's files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument

SHARED = Path("/run/sandmesh/agent")
CONFIG = "config"

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog='Example, in a Dockerfile: ENTRYPOINT ["sandmeshd", "agent"]')
def agent(
    directory: Annotated[
        Path, typer.Argument(help="The directory that it shares with its driver, where it reports that it is ready.")
    ] = SHARED,
) -> None:
    """Run the agent of a sandbox, PID 1 of a container that a driver creates. It cannot be run by hand."""
    if os.getpid() != 1:
        message = "the agent must be PID 1 of a sandbox: a driver starts it there, as `sandmeshd driver docker` does"
        raise InvalidArgument(f"{message}, from an image with the entry point `sandmeshd agent`")
    if not (directory / CONFIG).is_file():
        message = f"{directory / CONFIG} does not exist: a driver puts it into the container"
        raise InvalidArgument(f"{message}; to run the image by hand, override its entry point")
    # In a new program: this one has threads and gRPC by now, and an agent must be able to fork.
    program = [sys.executable, "-I", "-m", "sandmeshd.agent.main", "--container", str(directory)]
    os.execv(sys.executable, program)  # noqa: S606 - no shell is wanted
