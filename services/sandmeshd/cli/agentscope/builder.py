"""`runtime-sandbox-builder`: `sandmesh build`, of the template base unless another is named."""

from __future__ import annotations

import platform as machine
from pathlib import Path
from typing import Annotated, Literal

import typer

from sandmeshd.cli.build import BuildOptions, build_templates
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.options import Extensions
from sandmeshd.cli.terminal.single_command import single_command

OWN_PLATFORM = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}.get(machine.machine(), "")


def builder(
    build_type: Annotated[str, typer.Argument(help="The template, or `all`.")] = "base",
    dockerfile_path: Annotated[
        Path | None, typer.Option(help="The Dockerfile of the template's own image, which reads this directory.")
    ] = None,
    extension: Extensions = None,
    platform: Annotated[
        Literal["linux/amd64", "linux/arm64"] | None,
        typer.Option(help="The platform of images; for another one than this machine's the tag ends with it."),
    ] = None,
) -> None:
    """Build a template's image or Python environment, for the driver that settings choose, and test images."""
    from sandmeshd.cli.agentscope.served import serve_old_paths  # noqa: PLC0415 - as in `build_templates`

    serve_old_paths(extension)
    foreign = "" if platform is None or platform == OWN_PLATFORM else platform
    run_command(build_templates(build_type, BuildOptions(None, False, foreign, dockerfile_path, extension)))


app = single_command(
    builder, epilog="Example: runtime-sandbox-builder weather --dockerfile_path Dockerfile --extension weather.py"
)
