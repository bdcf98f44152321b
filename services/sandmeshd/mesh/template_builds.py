"""Builds templates and images with the driver of this machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from platform import machine

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import InvalidArgument, TemplateNotFound
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, build_system, has_system
from sandmeshd.drivers.engine.images.build import BASE, BASE_NODE, MESH, ImageBuilder, OwnImage, is_free, own_name
from sandmeshd.drivers.engine.images.clouds import PLATFORM, check_cloud, check_rules, push_commands
from sandmeshd.drivers.engine.images.platforms import check_platform, named_for
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.mesh.driver import driver_settings, open_driver
from sandmeshd.mesh.image_check import check_image
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.templates import Template, open_catalog

READY = BuildStep("ready", 1)
BUILT = (BASE, BASE_NODE, MESH)
"""The images that are built by name; the templates share the first two."""


async def build_images(settings: MeshSettings, image: str, bootstrap: bool, platform: str) -> AsyncIterator[BuildStep]:
    """Build the base of images, images for a platform, and that of the services, as far as they are requested.

    Raises:
        InvalidArgument: The driver has no images, or there are none for the platform, or of the template.
        TemplateBuildFailed: A step failed; the facts have the end of its output.
    """
    check_platform(platform)
    if platform and image not in (*BUILT, "all") and not is_folder(image):
        message = f"with --platform build {', '.join(BUILT)} or a folder, not {image!r}: templates share {BASE}"
        raise InvalidArgument(message, {"field": "template"})
    if not bootstrap and not platform and image != MESH and not is_folder(image):
        return
    builder = ImageBuilder(_engine_settings(settings))
    if bootstrap:
        async for step in builder.bootstrap(platform):
            yield step
    if platform or image == MESH:
        async for step in builder.build(image if image in BUILT else BASE, platform):
            yield step


def _engine_settings(settings: MeshSettings) -> DockerSettings:
    own = driver_settings(settings)
    if not isinstance(own, DockerSettings):
        raise InvalidArgument(f"the driver {settings.driver} has no images: choose --driver docker")
    return own


def is_folder(name: str) -> bool:
    """Return whether a name is that of a folder: no template has such a name."""
    return "/" in name or name.startswith(".")


def build_template(settings: MeshSettings, name: str, platform: str) -> AsyncIterator[tuple[str, BuildStep]]:
    """Build a template, `all`, or a folder, and yield each step with the template's name, READY at its end.

    Raises:
        TemplateNotFound: There is none of that name.
        InvalidArgument: There is no Dockerfile, or an image cannot have the folder's name.
        ProtocolMismatch: The image has no agent that this mesh speaks with.
        TemplateBuildFailed: A package could not be installed, or an image fails its tests; the facts have its output.
    """
    if not is_folder(name):
        return _build_named(settings, name, platform)
    image = ImageBuilder(_engine_settings(settings)).image_name(own_name(Path(name)), platform)
    return _build_own(settings, OwnImage(image, Path(name, "Dockerfile"), Path(name)), platform)


def platform_for(cloud: str) -> str:
    """Return the platform of a cloud's images, empty where it is this machine's own.

    Raises:
        InvalidArgument: There is no such cloud.
    """
    check_cloud(cloud)
    return "" if machine() == "x86_64" else PLATFORM


async def check_for_cloud(settings: MeshSettings, cloud: str, name: str, region: str) -> list[str]:
    """Check the images that were built for a template by a cloud's rules; return the commands that push it there.

    Raises:
        TemplateBuildFailed: It breaks a rule.
    """
    # The engine's client is an extra.
    from sandmeshd.drivers.engine.connection import tls_context  # noqa: PLC0415
    from sandmeshd.drivers.engine.engine import open_engine  # noqa: PLC0415

    own = _engine_settings(settings)
    builder, short = ImageBuilder(own), own_name(Path(name)) if is_folder(name) else name
    image = builder.image_name(short, platform_for(cloud))
    async with open_engine(own.url, tls_context(own)) as engine:
        check_rules(image, await engine.image(image))
    registry = own.registry or f"registry.{region}.aliyuncs.com"
    return push_commands(image, f"{registry}/{own.namespace}/{short}:{own.tag}")


def build_dockerfile(
    settings: MeshSettings, name: str, dockerfile: Path, platform: str
) -> AsyncIterator[tuple[str, BuildStep]]:
    """Build a template's own image from a Dockerfile, or one of that name, and yield as `build_template` does.

    The build reads the working directory.

    Raises:
        InvalidArgument: There is no such Dockerfile, or the template's image is this release's, or no image can have
            that name.
        ProtocolMismatch, TemplateBuildFailed: As `build_template`.
    """
    check_platform(platform)
    if not dockerfile.is_file():
        raise InvalidArgument(f"there is no Dockerfile at {dockerfile}", {"field": "dockerfile"})
    image = named_for(_own_image(settings, name), platform)
    return _build_own(settings, OwnImage(image, dockerfile, Path()), platform)


def _own_image(settings: MeshSettings, name: str) -> str:
    builder = ImageBuilder(_engine_settings(settings))
    template = open_catalog(settings.extensions, settings.templates).get(name)
    if template is not None and not template.image_is_shipped:
        return template.image
    if template is not None or name == "all" or not is_free(name):
        fix = "name a type whose class has an image, or another name in lower-case letters"
        raise InvalidArgument(f"no Dockerfile of your own can make the image of {name}: {fix}", {"fix": fix})
    return builder.image_name(name)


async def _build_named(settings: MeshSettings, name: str, platform: str) -> AsyncIterator[tuple[str, BuildStep]]:
    # `build_images` has built the services' image, and those for a platform, which are not tested.
    if platform:
        image = ImageBuilder(_engine_settings(settings)).image_name(name if name in BUILT else BASE, platform)
        yield image, READY
        return
    on_engine = isinstance(driver_settings(settings), DockerSettings)
    if name == MESH and on_engine:
        yield name, READY
        return
    settings.paths.make()
    book = _book(settings, name if on_engine else "")
    async with open_driver(settings, book, stands_by=False) as driver:
        info = await driver.get_info(driver_pb2.GetInfoRequest())
        known = [template.name for template in info.templates]
        if name not in ("all", *known):
            raise TemplateNotFound(f"no such template: {name} (known: {', '.join(known)})", {"known": ", ".join(known)})
        for chosen in _buildable(settings, book, known) if name == "all" else [name]:
            async for step in _make(settings, driver, book, chosen):
                yield chosen, step
            if on_engine:
                async for step in _check(settings, info, book, chosen):
                    yield chosen, step
            yield chosen, READY


def _buildable(settings: MeshSettings, book: Mapping[str, Template], known: list[str]) -> list[str]:
    """Return the templates that `all` means: those made on demand, and systems, are built only by name."""
    own = driver_settings(settings)
    usual = [name for name in known if not book[name].on_demand]
    if not isinstance(own, BubblewrapSettings):
        return [name for name in usual if not book[name].system]
    return [name for name in usual if has_system(own, book[name])]


async def _make(
    settings: MeshSettings, driver: Driver, book: Mapping[str, Template], name: str
) -> AsyncIterator[BuildStep]:
    template = book[name]
    if template.system and (with_system := _system_steps(driver_settings(settings), book, template)):
        async with aclosing(with_system) as steps:
            async for step in steps:
                yield step
    async for step in _prepare(driver, name):
        yield step


def _system_steps(
    own: DriverSettings, book: Mapping[str, Template], template: Template
) -> AsyncGenerator[BuildStep] | None:
    """Return the build of a template's Debian packages, which no create does; None where the driver can have none."""
    if isinstance(own, BubblewrapSettings):
        return build_system(own, template)
    if not isinstance(own, DockerSettings):
        return None
    from sandmeshd.drivers.engine.app import build_image  # noqa: PLC0415 - it needs the engine's client, an extra

    return build_image(own, book, template.name)


def _book(settings: MeshSettings, image: str) -> Mapping[str, Template]:
    """Return the templates of a mesh, and one of the image with Node.js where that is to be built."""
    book = open_catalog(settings.extensions, settings.templates)
    if image != BASE_NODE:
        return book
    return {**book, image: book[BASE].model_copy(update={"name": image, "image": image})}


async def _prepare(driver: Driver, name: str) -> AsyncIterator[BuildStep]:
    async for step in driver.prepare_template(driver_pb2.PrepareTemplateRequest(template=name)):
        if not step.done:
            yield BuildStep(step.message, step.fraction)


async def _check(
    settings: MeshSettings, info: driver_pb2.GetInfoResponse, book: Mapping[str, Template], name: str
) -> AsyncIterator[BuildStep]:
    if info.capabilities.agent_port:
        yield BuildStep("not tested: its agent needs a port that a mesh leases", -1)
        return
    async for step in check_image(settings, book, name):
        yield step


async def _build_own(
    settings: MeshSettings, own_image: OwnImage, platform: str
) -> AsyncIterator[tuple[str, BuildStep]]:
    """Build a user's own image on the base of this release, and test it."""
    builder, shipped, image = ImageBuilder(_engine_settings(settings)), open_catalog()[BASE], own_image.name
    own = shipped.model_copy(update={"name": "own", "image": image, "image_is_shipped": False})
    book = {BASE: shipped, "own": own}
    settings.paths.make()
    async with open_driver(settings, book, stands_by=False) as driver:
        if not platform:
            async for step in _prepare(driver, BASE):
                yield BASE, step
        async with aclosing(builder.build_own(own_image, platform)) as steps:
            async for step in steps:
                yield image, step
        async for step in _prepare(driver, "own"):
            yield image, step
        if not platform:
            info = await driver.get_info(driver_pb2.GetInfoRequest())
            async for step in _check(settings, info, book, "own"):
                yield image, step
        yield image, READY
