"""The images of templates: their names, and whether an existing one fits this mesh."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing

from aiodocker import DockerError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing, ProtocolMismatch, TemplateBuildFailed
from sandmesh.shared.frames import LINK_PROTOCOL
from sandmeshd.drivers.api.templates import check_no_node_packages, check_settings, template_info, template_of
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.engine.images.build import BASE, BASE_NODE, ImageBuilder
from sandmeshd.drivers.engine.images.labels import PROTOCOL_LABEL, SOURCES_LABEL, TEMPLATE_LABEL, labels_of
from sandmeshd.drivers.engine.images.layer import UpperLayer
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.agent_config import ENVIRONMENT
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.templates import Template


class Images:
    """The images of one driver's templates."""

    def __init__(
        self, settings: DockerSettings, engine: Engine, templates: Mapping[str, Template], builder: ImageBuilder
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._templates = templates
        self._builder = builder

    @property
    def names(self) -> Collection[str]:
        """The templates' names."""
        return self._templates.keys()

    def template(self, name: str) -> Template:
        """Return a template by name.

        Raises:
            TemplateNotFound: It does not exist; `facts["known"]` lists the existing ones.
        """
        return template_of(self._templates, name)

    def name_of(self, template: Template) -> str:
        """Return the name of a template's image: its own, or the one that templates with the shipped packages share."""
        if not template.image_is_shipped:
            return template.image
        return self._builder.image_name(self._image_of(template))

    def _image_of(self, template: Template) -> str:
        layer = self._layer_of(template)
        return self._shared_image_of(template) if layer is None else template.name

    def _shared_image_of(self, template: Template) -> str:
        return BASE_NODE if self._settings.node or template.needs_programs else BASE

    def _layer_of(self, template: Template) -> UpperLayer | None:
        """Return what a template's image has on top of the shared one; None where it is that one, or a user's own."""
        shipped = self._templates.get(BASE)
        with_python = shipped is not None and template.python != shipped.python
        if not template.image_is_shipped or not (template.system or with_python):
            return None
        return UpperLayer(template, self._shared_image_of(template), with_python)

    def _is_pulled(self, template: Template) -> bool:
        return bool(self._settings.registry) or not template.image_is_shipped

    def how_to_prepare(self, template: Template) -> str:
        """Return the fix for a template's missing image."""
        if template.image_is_shipped:
            return f"sandmesh build {template.name} --driver {self._settings.profile.name}"
        base = self._builder.image_name(BASE)
        return f"docker pull {template.image}, or build it FROM {base}, with its own packages in {ENVIRONMENT}"

    async def describe(self) -> list[pb.TemplateInfo]:
        """Return the templates as drivers report them."""
        return [template_info(template, await self.is_prepared(template)) for template in self._templates.values()]

    async def is_prepared(self, template: Template) -> bool:
        """Return whether a create can start without waiting; an image built here must match the current sources."""
        image = await self._engine.image(self.name_of(template))
        if image is None:
            return False
        labels = labels_of(image)
        if labels.get(PROTOCOL_LABEL) != str(LINK_PROTOCOL) or template.runtime_config:
            return False
        if not template.image_is_shipped:
            return not template.system
        layer = self._layer_of(template)
        made_of = self._builder.sources if layer is None else layer.sources(self._builder.sources)
        return self._is_pulled(template) or labels.get(SOURCES_LABEL) == made_of

    async def prepare(self, template: Template) -> AsyncGenerator[BuildStep]:
        """Pull the image if there is a registry, else build it.

        Raises:
            TemplateBuildFailed: It failed; `facts["detail"]` has the last lines, `facts["fix"]` the fix. Or an image of
                that name exists that was made by hand.
            ProtocolMismatch: The image has no agent, or one of another protocol.
            CapabilityMissing: The template has a setting that this driver does not support, or it has Debian packages,
                which are installed only by `build`.
        """
        self.check(template)
        if await self.is_prepared(template):
            return
        if template.system and not self._is_pulled(template):
            fix = self.how_to_prepare(template)
            message = f"the image with the Debian packages of {template.name!r} is not built: {fix}"
            raise CapabilityMissing(message, {"needs": "system", "fix": fix, "template": template.name})
        async with aclosing(self.build(template)) as steps:
            async for step in steps:
                yield step

    def check(self, template: Template) -> None:
        """Check that a template states nothing that images cannot have.

        Raises:
            CapabilityMissing: It does; `facts["needs"]` names it.
        """
        check_settings(template, self._settings.profile.name)
        check_no_node_packages(template, self._settings.profile.name)
        if template.system and not template.image_is_shipped:
            fix = f"install them in {template.image} itself, and leave out `system`"
            message = f"no Debian packages (system) are added to the image {template.image} of {template.name!r}: {fix}"
            raise CapabilityMissing(message, {"needs": "system", "fix": fix, "template": template.name})

    async def build(self, template: Template) -> AsyncGenerator[BuildStep]:
        """Pull or build an image that is not prepared.

        Raises:
            TemplateBuildFailed, ProtocolMismatch: As `prepare`.
        """
        name = self.name_of(template)
        # A user's own image is used as it is if it exists: it may have been built here.
        if template.image_is_shipped or await self._engine.image(name) is None:
            pulled = self._is_pulled(template)
            if not pulled:
                await self._check_replaceable(template)
            async with aclosing(self._pull(template) if pulled else self._built(template)) as steps:
                async for step in steps:
                    yield step
        await self._check(template)

    def _built(self, template: Template) -> AsyncGenerator[BuildStep]:
        layer = self._layer_of(template)
        return self._builder.build(self._image_of(template)) if layer is None else self._builder.build_layer(layer)

    async def _check_replaceable(self, template: Template) -> None:
        """Check that building an image overwrites none that somebody made by hand, FROM a shipped one perhaps."""
        name, layer = self.name_of(template), self._layer_of(template)
        image = await self._engine.image(name)
        labels = labels_of(image or {})
        made_for = "" if layer is None else template.name
        if image is not None and (not labels.get(SOURCES_LABEL) or labels.get(TEMPLATE_LABEL, "") != made_for):
            fix = f"docker rmi {name}, or give it another name (docker tag), or set another SANDMESH_IMAGE_TAG"
            message = f"the image {name} exists, and was not built by sandmesh: it is not overwritten; {fix}"
            raise TemplateBuildFailed(message, {"detail": message, "fix": fix})

    async def _check(self, template: Template) -> None:
        name, base = self.name_of(template), self._builder.image_name(BASE)
        spoken = labels_of(await self._engine.image(name) or {}).get(PROTOCOL_LABEL)
        if spoken != str(LINK_PROTOCOL):
            has = f"speaks protocol {spoken}" if spoken else "has no agent of sandmesh"
            shipped = "build or pull the image of this release (sandmesh build base --driver docker)"
            fix = shipped if template.image_is_shipped else f"build it FROM {base} of this release"
            raise ProtocolMismatch(f"the image {name} {has}, and this mesh speaks {LINK_PROTOCOL}: {fix}", {"fix": fix})

    async def _pull(self, template: Template) -> AsyncGenerator[BuildStep]:
        name = self.name_of(template)
        # A registry may take long until its first response.
        yield BuildStep(f"pulling {name}", -1)
        try:
            async with aclosing(self._engine.pull(name)) as lines:
                async for line in lines:
                    yield BuildStep(f"pulling {name}: {line}", -1)
        except DockerError as error:
            fix = self.how_to_prepare(template)
            if template.image_is_shipped:
                fix = f"check SANDMESH_REGISTRY, or unset it and build the image here ({fix})"
            message = f"{name} could not be pulled: {error.message}; {fix}"
            raise TemplateBuildFailed(message, {"detail": error.message, "fix": fix}) from None
