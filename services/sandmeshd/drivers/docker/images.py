"""The images of templates: their names, and whether the one that is there fits this mesh."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from aiodocker import DockerError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import ProtocolMismatch, TemplateBuildFailed, TemplateNotFound
from sandmeshd.drivers.agent_link import PROTOCOL
from sandmeshd.drivers.docker.building import ImageBuilder, Step
from sandmeshd.drivers.docker.engine import Engine, told
from sandmeshd.drivers.docker.settings import DockerSettings
from sandmeshd.drivers.egress import default_grant
from sandmeshd.templates import Template

BASE = "base"
PROTOCOL_LABEL, SOURCES_LABEL = "dev.sandmesh.protocol", "dev.sandmesh.sources"


class Images:
    """What sandboxes of a driver are made from."""

    def __init__(
        self, settings: DockerSettings, engine: Engine, templates: Mapping[str, Template], builder: ImageBuilder
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._templates = templates
        self._builder = builder

    def template(self, name: str) -> Template:
        """Give a template by name.

        Raises:
            TemplateNotFound: There is none; `facts["known"]` lists those there are.
        """
        if name not in self._templates:
            known = ", ".join(self._templates)
            raise TemplateNotFound(f"there is no template {name!r}: choose one of {known}", {"known": known})
        return self._templates[name]

    def name_of(self, template: Template) -> str:
        """Give the name of a template's image: those with the shipped packages share one, others have their own."""
        return self._builder.image_name(self._image_of(template))

    def _image_of(self, template: Template) -> str:
        shipped = self._templates.get(BASE)
        return BASE if shipped is None or template.python == shipped.python else template.name

    async def describe(self) -> list[pb.TemplateInfo]:
        """Give the templates as drivers report them."""
        return [await self._info(template) for template in self._templates.values()]

    async def _info(self, template: Template) -> pb.TemplateInfo:
        return pb.TemplateInfo(
            name=template.name,
            prepared=await self.is_prepared(template),
            generation=template.generation,
            tool_groups=template.tool_groups,
            network=default_grant(template),
        )

    async def is_prepared(self, template: Template) -> bool:
        """Say whether a create can start at once: one that was built here is of the sources that are here."""
        found = await self._engine.image(self.name_of(template))
        if found is None:
            return False
        labels = labels_of(found)
        built_here = not self._settings.registry and self._image_of(template) == BASE
        return labels.get(PROTOCOL_LABEL) == str(PROTOCOL) and (
            not built_here or labels.get(SOURCES_LABEL) == self._builder.sources
        )

    async def prepare(self, template: Template) -> AsyncGenerator[Step]:
        """Have the image there: pulled where there is a registry, else built.

        Raises:
            TemplateBuildFailed: It could not be; `facts["detail"]` has the last words, `facts["fix"]` what to do.
            ProtocolMismatch: What was pulled is none of this mesh's.
        """
        if await self.is_prepared(template):
            return
        name = self.name_of(template)
        steps = self._pull(name) if self._settings.registry else self._builder.build(self._image_of(template))
        async with aclosing(steps):
            async for step in steps:
                yield step
        await self.check(name)

    async def check(self, name: str) -> None:
        """Check that an image has an agent that this mesh can speak with.

        Raises:
            ProtocolMismatch: It has none, or one of another protocol.
        """
        labels = labels_of(await self._engine.image(name) or {})
        spoken = labels.get(PROTOCOL_LABEL)
        if spoken != str(PROTOCOL):
            has = f"speaks protocol {spoken}" if spoken else "has no agent of sandmesh"
            fix = "build or pull the image of this release (sandmesh build base --driver docker)"
            raise ProtocolMismatch(f"the image {name} {has}, and this mesh speaks {PROTOCOL}: {fix}", {"fix": fix})

    async def _pull(self, name: str) -> AsyncGenerator[Step]:
        try:
            with told(self._engine.url):
                async for line in self._engine.docker.images.pull(name, stream=True):
                    yield Step(f"pulling {name}: {line.get('status', '')}", -1)
        except DockerError as error:
            fix = "check SANDMESH_REGISTRY, or unset it and build the image here (sandmesh build base --driver docker)"
            message = f"{name} could not be pulled: {error.message}; {fix}"
            raise TemplateBuildFailed(message, {"detail": error.message, "fix": fix}) from None


def labels_of(image: Mapping[str, Any]) -> Mapping[str, str]:
    """Give an image's labels."""
    config: dict[str, Any] = image.get("Config") or {}
    labels: dict[str, str] | None = config.get("Labels")
    return labels or {}
