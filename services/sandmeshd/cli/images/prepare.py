"""Prepares templates with the driver of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import InvalidArgument, TemplateNotFound
from sandmeshd.cli.images.trial import try_out
from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.engine.images.build import MESH, ImageBuilder, Step, own_name
from sandmeshd.drivers.engine.images.images import BASE
from sandmeshd.drivers.engine.images.platforms import check_platform
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import driver_settings, open_driver
from sandmeshd.templates import Template, open_catalog

READY = Step("ready", 1)


async def make_images(settings: MeshSettings, image: str, bootstrap: bool, platform: str) -> AsyncIterator[Step]:
    """Make the base of images, images for a platform, and that of the services; nothing where none is asked for.

    Raises:
        InvalidArgument: The driver has no images, or there are none for the platform, or of the template.
        TemplateBuildFailed: A step failed; the facts have its last words.
    """
    check_platform(platform)
    if platform and image not in (BASE, MESH, "all") and not is_folder(image):
        message = f"for a platform {BASE}, {MESH} or a folder is built, not {image!r}: templates share {BASE}"
        raise InvalidArgument(message, {"field": "template"})
    if not bootstrap and not platform and image != MESH and not is_folder(image):
        return
    builder = ImageBuilder(_engine_settings(settings))
    if bootstrap:
        async for step in builder.bootstrap(platform):
            yield step
    if platform or image == MESH:
        async for step in builder.build(MESH if image == MESH else BASE, platform):
            yield step


def _engine_settings(settings: MeshSettings) -> DockerSettings:
    found = driver_settings(settings)
    if not isinstance(found, DockerSettings):
        raise InvalidArgument(f"the driver {settings.driver} has no images: choose --driver docker")
    return found


def is_folder(what: str) -> bool:
    """Say whether what is to be built is a folder: no template has such a name."""
    return "/" in what or what.startswith(".")


def steps(settings: MeshSettings, what: str, platform: str) -> AsyncIterator[tuple[str, Step]]:
    """Build a template, `all`, or a folder: `build_folder` or `prepare`."""
    return build_folder(settings, Path(what), platform) if is_folder(what) else prepare(settings, what, platform)


async def prepare(settings: MeshSettings, name: str, platform: str) -> AsyncIterator[tuple[str, Step]]:
    """Build one template, or `all`, and try its image; give each step with its template's name, 1 at its end.

    The services' image was made before, and so were those for a platform, which are not tried.

    Raises:
        TemplateNotFound: There is none of that name.
        TemplateBuildFailed: A package could not be installed, or an image does not do; the facts have its last words.
    """
    if platform:
        image = ImageBuilder(_engine_settings(settings)).image_name(MESH if name == MESH else BASE, platform)
        yield image, READY
        return
    on_engine = isinstance(driver_settings(settings), DockerSettings)
    if name == MESH and on_engine:
        yield name, READY
        return
    settings.paths.make()
    book = open_catalog(settings.extensions, settings.templates)
    async with open_driver(settings, book, stands_by=False) as driver:
        info = await driver.get_info(driver_pb2.GetInfoRequest())
        known = [template.name for template in info.templates]
        if name not in ("all", *known):
            raise TemplateNotFound(f"no template {name}: there are {', '.join(known)}", {"known": ", ".join(known)})
        for chosen in known if name == "all" else [name]:
            async for step in _prepared(driver, chosen):
                yield chosen, step
            if on_engine:
                async for tried in _tried(settings, info, book, chosen):
                    yield chosen, tried
            yield chosen, READY


async def _prepared(driver: Driver, name: str) -> AsyncIterator[Step]:
    async for step in driver.prepare_template(driver_pb2.PrepareTemplateRequest(template=name)):
        if not step.done:
            yield Step(step.message, step.fraction)


async def _tried(
    settings: MeshSettings, info: driver_pb2.GetInfoResponse, book: Mapping[str, Template], name: str
) -> AsyncIterator[Step]:
    if info.capabilities.agent_port:
        yield Step("not tried: its agent needs a port that a mesh leases", -1)
        return
    async for step in try_out(settings, book, name):
        yield step


async def build_folder(settings: MeshSettings, folder: Path, platform: str) -> AsyncIterator[tuple[str, Step]]:
    """Build the image of a folder's Dockerfile on the base of this release, and try it; steps are as `prepare`'s.

    Raises:
        InvalidArgument: There is no Dockerfile, or an image cannot have the folder's name.
        ProtocolMismatch: It has no agent that this mesh speaks with.
        TemplateBuildFailed: A step failed, or the image does not do; the facts have its last words.
    """
    builder, name = ImageBuilder(_engine_settings(settings)), own_name(folder)
    shipped, image = open_catalog()[BASE], builder.image_name(name, platform)
    own = shipped.model_copy(update={"name": "own", "image": image, "image_is_shipped": False})
    book = {BASE: shipped, "own": own}
    settings.paths.make()
    async with open_driver(settings, book, stands_by=False) as driver:
        if not platform:
            async for step in _prepared(driver, BASE):
                yield BASE, step
        async with aclosing(builder.build_folder(folder, platform)) as steps:
            async for step in steps:
                yield image, step
        async for step in _prepared(driver, "own"):
            yield image, step
        if not platform:
            info = await driver.get_info(driver_pb2.GetInfoRequest())
            async for step in _tried(settings, info, book, "own"):
                yield image, step
        yield image, READY
