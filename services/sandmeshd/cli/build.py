"""Builds templates from the command line."""

from __future__ import annotations

import typer
from rich.console import Console

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import TemplateNotFound
from sandmeshd.cli.progress import progress_bar
from sandmeshd.drivers.bubblewrap import open_driver
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.app import driver_settings


async def build_template(settings: MeshSettings, name: str) -> None:
    """Build one template, or `all`, with a progress bar.

    Raises:
        TemplateNotFound: There is none of that name.
        TemplateBuildFailed: A package could not be installed; the facts have its last words.
    """
    settings.paths.make()
    async with open_driver(driver_settings(settings)) as driver:
        info = await driver.get_info(driver_pb2.GetInfoRequest())
        known = [template.name for template in info.templates]
        if name not in ("all", *known):
            raise TemplateNotFound(f"no template {name}: there are {', '.join(known)}", {"known": ",".join(known)})
        for chosen in known if name == "all" else [name]:
            with progress_bar(Console(stderr=True)) as progress:
                async for step in driver.prepare_template(driver_pb2.PrepareTemplateRequest(template=chosen)):
                    progress(f"{chosen}: {step.message}", step.fraction)
            typer.echo(f"{chosen} is ready")
