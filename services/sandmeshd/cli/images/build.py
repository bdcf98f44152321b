"""Builds what templates are made of, ahead of the first sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from sandmeshd.cli.terminal.completion import complete_templates
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.options import Answer, Shape
from sandmeshd.cli.terminal.output import print_json
from sandmeshd.cli.terminal.progress import progress_bar

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Examples: sandmesh build | sandmesh build filesystem | sandmesh build ./mine --driver docker")
def build(
    template: Annotated[
        str,
        typer.Argument(
            help="The template, `all`, `mesh` (the services' image), or a folder with a Dockerfile, such as ./mine.",
            autocompletion=complete_templates,
            metavar="[TEMPLATE|FOLDER]",
        ),
    ] = "all",
    driver: Annotated[
        str | None, typer.Option(help="Build for this driver; by default SANDMESH_DRIVER's, else bubblewrap.")
    ] = None,
    bootstrap_base: Annotated[
        bool,
        typer.Option("--bootstrap-base", help="Make the Debian base of images here, with mmdebstrap."),
    ] = False,
    platform: Annotated[
        str,
        typer.Option(
            help="What images are for: linux/amd64 or linux/arm64, with a tag that ends so; by default this machine.",
            metavar="OS/ARCH",
        ),
    ] = "",
    output: Answer = Shape.TEXT,
) -> None:
    """Build what a template is made of, so that the first sandbox does not wait for it; an image is tried, too."""
    built = run_to_end(_built(template, driver, Making(bootstrap_base, platform)))
    if output is Shape.JSON:
        print_json({"templates": built})


@dataclass(frozen=True)
class Making:
    """How images are made."""

    bootstrap_base: bool
    platform: str


async def _built(template: str, driver: str | None, making: Making) -> list[str]:
    # Drivers and services take a second to import, which other commands need not wait for.
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.cli.images import prepare as preparing  # noqa: PLC0415
    from sandmeshd.runtime.logs import configure_logging  # noqa: PLC0415

    settings = read_settings(driver=driver)
    configure_logging("WARNING")
    built: list[str] = []
    with progress_bar(Console(stderr=True)) as progress:
        async for image in preparing.make_images(settings, template, making.bootstrap_base, making.platform):
            progress(image.message, image.fraction)
        async for name, step in preparing.steps(settings, template, making.platform):
            progress(f"{name}: {step.message}", step.fraction)
            if step is preparing.READY:
                built.append(name)
                typer.echo(f"{name} is ready", err=True)
    return built
