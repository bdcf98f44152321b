"""What is built for templates before any create: their Python environments and the agent's code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import WrongState
from sandmeshd.drivers.api.requirements import in_memory
from sandmeshd.drivers.api.templates import template_info, template_of
from sandmeshd.drivers.bubblewrap.arguments import Mounts
from sandmeshd.drivers.bubblewrap.environment import EnvironmentBuilder, home_files
from sandmeshd.drivers.bubblewrap.requirements import check_template, supports
from sandmeshd.drivers.bubblewrap.systems import Systems
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.builds import BuildStep, is_complete
from sandmeshd.drivers.node.mounts.node_packages import build_packages, has_packages, node_mounts
from sandmeshd.drivers.node.mounts.user_view import template_mounts
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.templates import Template, build_command

SystemBuild: TypeAlias = Callable[[Template], AsyncGenerator[BuildStep]]
"""Builds a template's system unless its packages are there."""


class TemplateBuilds:
    """The templates of a driver and what was built for them; without `make_system` only a command builds systems."""

    def __init__(
        self,
        paths: MeshPaths,
        templates: Mapping[str, Template],
        builder: EnvironmentBuilder,
        agent: AgentTree,
        systems: Systems,
        make_system: SystemBuild | None = None,
    ) -> None:
        self._paths = paths
        self._templates = templates
        self._builder = builder
        self._agent = agent
        self._systems = systems
        self._make_system = make_system
        self._seeds: dict[Path, tuple[str, ...]] = {}
        self._environments: dict[str, Path] = {}
        self._infos: dict[tuple[str, bool], pb.TemplateInfo] = {}

    @property
    def names(self) -> Collection[str]:
        """The templates' names."""
        return self._templates.keys()

    def template(self, name: str) -> Template:
        """Return a template by name.

        Raises:
            TemplateNotFound: It does not exist.
        """
        return template_of(self._templates, name)

    def describe(self) -> list[pb.TemplateInfo]:
        """Return the templates as drivers report them."""
        return [self._info(template, self.is_prepared(template)) for template in self._templates.values()]

    def _info(self, template: Template, prepared: bool) -> pb.TemplateInfo:
        key = template.name, prepared
        if key not in self._infos:
            self._infos[key] = template_info(template, prepared)
        return self._infos[key]

    def is_prepared(self, template: Template) -> bool:
        """Return whether a create can start without waiting."""
        built = supports(template) and self._agent.prepared and is_complete(self._environment(template))
        built = built and has_packages(self._paths.cache, template)
        return built and (not template.system or self._systems.find(template.system) is not None)

    def _environment(self, template: Template) -> Path:
        if template.name not in self._environments:
            self._environments[template.name] = self._builder.path(template.python)
        return self._environments[template.name]

    def standing_by(self) -> list[Template]:
        """Return the templates whose zygotes start with the driver: those that are prepared and need no own system."""
        usual = [template for template in self._templates.values() if not template.system and not template.on_demand]
        return [template for template in usual if template.image_is_shipped and self.is_prepared(template)]

    async def prepare(self, template: Template, *, ahead: bool = False) -> AsyncGenerator[BuildStep]:
        """Build what does not exist yet, yielding the progress; `ahead` of any sandbox no system is built.

        Raises:
            TemplateBuildFailed: A package could not be installed.
            RuntimeUnavailable: The mesh's own Python lacks what builds are made with, or the disk is full.
            CapabilityMissing: It has an image, or a setting that this driver does not support, or its Debian packages
                are not there, and the mesh is not a program's own: `sandmesh build` downloads them.
        """
        check_template(template)
        if self._make_system is not None and template.system and not ahead:
            async with aclosing(self._make_system(template)) as steps:
                async for step in steps:
                    yield step
        self._systems.binds(template)
        with full_disk_explained(self._builder.path(template.python).parent):
            if not self._agent.prepared:
                yield BuildStep("copying the agent", 0)
                await self._agent.build()
            async with aclosing(self._builder.build(template.python)) as steps:
                async for step in steps:
                    yield step
            node = build_packages(self._paths.cache, template, self._builder.path(template.python))
            async with aclosing(node) as steps:
                async for step in steps:
                    yield step

    def mounts(self, template: Template, folder: Folder, limits: sandbox_pb2.Limits) -> Mounts:
        """Return a sandbox's mounts; its workspace is in memory if its size is limited.

        Raises:
            WrongState: The template is not prepared.
            CapabilityMissing: This driver can never prepare it, or the node lacks the administrator's data for it.
        """
        check_template(template)
        system = self._systems.binds(template)
        if not self.is_prepared(template):
            message = f"template {template.name} is not prepared: prepare it first ({build_command(template.name)})"
            raise WrongState(message, {"state": "not prepared", "template": template.name})
        environment = self._environment(template)
        if environment not in self._seeds:
            self._seeds[environment] = home_files(environment)
        seeds = self._seeds[environment]
        sites = (self._agent.site, self._agent.mcp)
        mounts = Mounts(environment, seeds, *sites, folder.workspace, folder.sockets, *in_memory(limits))
        seen = (*template_mounts(template, self._paths), *node_mounts(self._paths.cache, template))
        home = None if limits.disk_bytes else folder.home
        return replace(mounts, system=system, data=seen, scratch=template.scratch, home=home)
