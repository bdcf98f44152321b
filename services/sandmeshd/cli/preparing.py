"""Prepares templates with the driver of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import TemplateNotFound
from sandmeshd.drivers.bubblewrap import open_driver
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.app import driver_settings
from sandmeshd.templates import open_book


async def prepare(settings: MeshSettings, name: str) -> AsyncIterator[tuple[str, driver_pb2.PrepareTemplateResponse]]:
    """Build one template, or `all`; give each step with its template's name.

    Raises:
        TemplateNotFound: There is none of that name.
        TemplateBuildFailed: A package could not be installed; the facts have its last words.
    """
    settings.paths.make()
    book = open_book(settings.extensions, settings.templates)
    async with open_driver(driver_settings(settings).model_copy(update={"stands_by": False}), templates=book) as driver:
        info = await driver.get_info(driver_pb2.GetInfoRequest())
        known = [template.name for template in info.templates]
        if name not in ("all", *known):
            raise TemplateNotFound(f"no template {name}: there are {', '.join(known)}", {"known": ", ".join(known)})
        for chosen in known if name == "all" else [name]:
            async for step in driver.prepare_template(driver_pb2.PrepareTemplateRequest(template=chosen)):
                yield chosen, step
