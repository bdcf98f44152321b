"""Prepares templates with the driver of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import InvalidArgument, TemplateNotFound
from sandmeshd.drivers.docker.building import MESH, ImageBuilder, Step
from sandmeshd.drivers.docker.kinds import KINDS
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driving import docker_settings, open_driver
from sandmeshd.templates import open_book


async def make_images(settings: MeshSettings, image: str, bootstrap: bool, platform: str) -> AsyncIterator[Step]:
    """Make the base of images, images for a platform, and that of the services; nothing where none is asked for.

    Raises:
        InvalidArgument: The driver has no images.
        TemplateBuildFailed: A step failed; the facts have its last words.
    """
    if not bootstrap and not platform and image != MESH:
        return
    if settings.driver not in KINDS:
        raise InvalidArgument(f"the driver {settings.driver} has no images: say --driver docker")
    builder = ImageBuilder(docker_settings(settings))
    if bootstrap:
        async for step in builder.bootstrap():
            yield step
    if platform or image == MESH:
        async for step in builder.build(MESH if image == MESH else "base", platform):
            yield step


async def prepare(settings: MeshSettings, name: str) -> AsyncIterator[tuple[str, driver_pb2.PrepareTemplateResponse]]:
    """Build one template, or `all`; give each step with its template's name; the services' image was made before.

    Raises:
        TemplateNotFound: There is none of that name.
        TemplateBuildFailed: A package could not be installed; the facts have its last words.
    """
    if name == MESH and settings.driver in KINDS:
        yield name, driver_pb2.PrepareTemplateResponse(message="ready", fraction=1, done=True)
        return
    settings.paths.make()
    book = open_book(settings.extensions, settings.templates)
    async with open_driver(settings, book, stands_by=False) as driver:
        info = await driver.get_info(driver_pb2.GetInfoRequest())
        known = [template.name for template in info.templates]
        if name not in ("all", *known):
            raise TemplateNotFound(f"no template {name}: there are {', '.join(known)}", {"known": ", ".join(known)})
        for chosen in known if name == "all" else [name]:
            async for step in driver.prepare_template(driver_pb2.PrepareTemplateRequest(template=chosen)):
                yield chosen, step
