"""`sandmesh build`: images and Python environments of templates, ahead of the first sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandmeshd.cli.image_builds import ImageOptions, build_image
from sandmeshd.cli.terminal.completion import complete_templates
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Extensions, Format, Output
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class BuildOptions:
    """The driver that is built for, and how its images are built."""

    driver: Annotated[
        str | None, typer.Option(help="Build for this driver; by default SANDMESH_DRIVER's, else bubblewrap.")
    ] = None
    bootstrap_base: Annotated[
        bool,
        typer.Option("--bootstrap-base", help="Build the Debian base of images here, with mmdebstrap."),
    ] = False
    platform: Annotated[
        str,
        typer.Option(
            help="The platform of images, linux/amd64 or linux/arm64, which ends their tag; by default this machine's.",
            metavar="OS/ARCH",
        ),
    ] = ""
    dockerfile: Annotated[
        Path | None,
        typer.Option(
            help="Build the template's own image from this file, which reads the working directory, on an engine.",
            metavar="FILE",
        ),
    ] = None
    extension: Extensions = None
    template_file: Annotated[
        list[Path] | None,
        typer.Option("--template", help="A template as a YAML or TOML file, as for `up`; repeatable.", metavar="FILE"),
    ] = None
    cloud: Annotated[
        str,
        typer.Option(
            "--for",
            help="Build for a cloud, fc or agentrun: the image is checked, and the commands that push it are printed.",
            metavar="CLOUD",
        ),
    ] = ""


@commands.command(
    epilog="Examples: sandmesh build filesystem | sandmesh build ./mine --driver docker | sandmesh build . --tag mine:1"
)
@grouped
def build(
    options: BuildOptions,
    image: ImageOptions,
    template: Annotated[
        str,
        typer.Argument(
            help="The template, `all`, `base-node` (with Node.js), `mesh` (services), or a folder with a Dockerfile.",
            autocompletion=complete_templates,
            metavar="[TEMPLATE|FOLDER]",
        ),
    ] = "all",
    output: Output = Format.TEXT,
) -> None:
    """Build a template's image or Python environment ahead of its first sandbox, or with --tag an image of any kind."""
    image.check()
    if image.is_chosen:
        build_image(template if template != "all" else ".", image, as_json=output is Format.JSON)
        return
    built = run_command(build_templates(template, options))
    if options.cloud:
        for command in run_command(cloud_commands(template, options)):
            typer.echo(command)
        return
    if output is Format.JSON:
        print_json({"templates": built})


async def cloud_commands(template: str, options: BuildOptions) -> list[str]:
    """Check a template's image by the rules of a cloud; return the commands that push it there.

    Raises:
        TemplateBuildFailed: It breaks a rule.
    """
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415 - as in `build_templates`
    from sandmeshd.mesh.template_builds import check_for_cloud  # noqa: PLC0415

    settings = read_settings(driver=options.driver, defaults={"driver": "docker"})
    names = {"fc": "SANDMESH_FC_REGION_ID", "agentrun": "SANDMESH_AGENT_RUN_REGION_ID"}
    region = str(settings.drivers.get(names[options.cloud]) or "cn-hangzhou")
    return await check_for_cloud(settings, options.cloud, template, region)


async def build_templates(template: str, options: BuildOptions) -> list[str]:
    """Build a template, `all`, `mesh` or a folder; return the names of what is ready.

    Raises:
        SandmeshError: As `build_images`, `build_template` and `build_dockerfile`.
    """
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.cli.terminal.progress import progress_bar  # noqa: PLC0415
    from sandmeshd.mesh.template_builds import (  # noqa: PLC0415
        READY,
        build_dockerfile,
        build_images,
        build_template,
        platform_for,
    )
    from sandmeshd.runtime.full_disk import full_disk_explained  # noqa: PLC0415
    from sandmeshd.runtime.telemetry.logs import configure_logging  # noqa: PLC0415

    # A Dockerfile is an engine's: one is chosen where no setting chooses a driver.
    defaults = {"driver": "docker"} if options.dockerfile is not None or options.cloud else None
    platform = platform_for(options.cloud) if options.cloud else options.platform
    extensions = tuple(options.extension or ()) or None
    files = tuple(options.template_file or ()) or None
    settings = read_settings(driver=options.driver, extensions=extensions, templates=files, defaults=defaults)
    configure_logging("WARNING")
    built: list[str] = []
    with full_disk_explained(settings.state_directory), progress_bar() as progress:
        if options.dockerfile is None:
            async for step in build_images(settings, template, options.bootstrap_base, platform):
                progress(step.message, step.fraction)
            steps = build_template(settings, template, platform)
        else:
            steps = build_dockerfile(settings, template, options.dockerfile, platform)
        async for name, step in steps:
            progress(f"{name}: {step.message}", step.fraction)
            if step is READY:
                built.append(name)
                typer.echo(f"{name} is ready", err=True)
    return built
