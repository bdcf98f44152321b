"""`sandmesh build`: images and Python environments of templates, ahead of the first sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from sandmeshd.cli.terminal.completion import complete_templates
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json

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
        typer.Option("--bootstrap-base", help="Build the Debian base of images here, with mmdebstrap."),
    ] = False,
    platform: Annotated[
        str,
        typer.Option(
            help="The platform of images, linux/amd64 or linux/arm64, which ends their tag; by default this machine's.",
            metavar="OS/ARCH",
        ),
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Build a template's image or Python environment, ahead of its first sandbox; images are tested too."""
    built = run_command(_build(template, driver, ImageOptions(bootstrap_base, platform)))
    if output is Format.JSON:
        print_json({"templates": built})


@dataclass(frozen=True)
class ImageOptions:
    """How images are built."""

    bootstrap_base: bool
    platform: str


async def _build(template: str, driver: str | None, images: ImageOptions) -> list[str]:
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.cli.terminal.progress import progress_bar  # noqa: PLC0415
    from sandmeshd.mesh.template_builds import READY, build_images, build_template  # noqa: PLC0415
    from sandmeshd.runtime.logs import configure_logging  # noqa: PLC0415

    settings = read_settings(driver=driver)
    configure_logging("WARNING")
    built: list[str] = []
    with progress_bar() as progress:
        async for step in build_images(settings, template, images.bootstrap_base, images.platform):
            progress(step.message, step.fraction)
        async for name, step in build_template(settings, template, images.platform):
            progress(f"{name}: {step.message}", step.fraction)
            if step is READY:
                built.append(name)
                typer.echo(f"{name} is ready", err=True)
    return built
