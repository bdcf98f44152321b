"""Opens the docker driver, and removes what dead private meshes left on the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.decorators.egress_guard import open_egress
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.engine.connection import check_url, tls_context
from sandmeshd.drivers.engine.container_config import MESH, OWNER, SANDBOX, STATE, container_name
from sandmeshd.drivers.engine.driver import EngineDriver
from sandmeshd.drivers.engine.engine import Engine, open_engine
from sandmeshd.drivers.engine.images.build import ImageBuilder
from sandmeshd.drivers.engine.images.images import Images
from sandmeshd.drivers.engine.orphans import remove_with_orphans
from sandmeshd.drivers.engine.reach.link_choice import choose_link
from sandmeshd.drivers.engine.reach.links import AgentAccess
from sandmeshd.drivers.engine.requirements import default_memory
from sandmeshd.drivers.engine.runtimes import GVISOR
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.engine.unmodified.sandboxes import UnmodifiedSandboxes
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.drivers.node.seccomp import build_filters
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.templates import Template, load_templates

UNSTARTED, FROZEN = "created", "paused"


@asynccontextmanager
async def open_driver(
    settings: DockerSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; the sandboxes that carry its label are adopted.

    They outlive it, unless `ends_with_driver` says otherwise. `resolver` finds the addresses of what sandboxes want to
    reach; by default the system does. Templates may be added while it runs; by default they are the shipped ones.

    Raises:
        InvalidArgument: What sandboxes are to see of the host is not there, or may not be where it is wanted.
        RuntimeUnavailable: The engine does not answer or there is no way to its agents, or libseccomp is missing;
            `facts["fix"]` says what to do.
    """
    check_url(settings)
    await asyncio.to_thread(lambda: settings.host_mounts)
    filters = await asyncio.to_thread(build_filters)
    async with open_engine(settings.url, tls_context(settings)) as engine:
        found = {
            "link": await choose_link(engine, settings),
            "default_memory": default_memory(settings, await engine.info()),
        }
        settings = settings.model_copy(update=found)
        book = load_templates() if templates is None else templates
        images = Images(settings, engine, book, ImageBuilder(settings))
        unmodified = UnmodifiedSandboxes(settings, engine, filters.image_user)
        driver = EngineDriver(settings, engine, images, unmodified, filters.user)
        await _sweep(engine, settings.paths, settings.link)
        await driver.adopt()
        try:
            async with open_egress(driver, settings.paths, settings.egress, resolver) as guarded:
                yield guarded
        finally:
            await driver.close()


async def build_image(
    settings: DockerSettings, templates: Mapping[str, Template], name: str
) -> AsyncGenerator[BuildStep]:
    """Build the image of a template with Debian packages, which no create does, unless it is there.

    Raises:
        RuntimeUnavailable: The engine does not answer, or no client that can build is installed.
        TemplateBuildFailed, ProtocolMismatch, CapabilityMissing: As `Images.prepare`.
    """
    check_url(settings)
    async with open_engine(settings.url, tls_context(settings)) as engine:
        images = Images(settings, engine, templates, ImageBuilder(settings))
        template = images.template(name)
        images.check(template)
        if not await images.is_prepared(template):
            async with aclosing(images.build(template)) as steps:
                async for step in steps:
                    yield step


async def _sweep(engine: Engine, paths: MeshPaths, link: AgentAccess) -> None:
    """Remove the containers of programs that were killed: their private mesh's directory is gone."""
    for container in await engine.list(STATE):
        labels = container["Labels"]
        state = Path(labels[STATE])
        private = state.parent == paths.state.parent and state.name.startswith("private-")
        # A directory that is not here may be another machine's.
        ours = labels.get(OWNER, "") == link.owner
        if ours and private and not await asyncio.to_thread(state.is_dir):
            await _end(engine, container)
            if link.mode == "network":
                await engine.remove_network(container_name(labels[MESH], labels[SANDBOX]))


async def _end(engine: Engine, container: Mapping[str, Any]) -> None:
    if container["State"] == UNSTARTED:
        await remove_with_orphans(engine, container["Id"], GVISOR.helpers)
    else:
        await engine.remove(container["Id"], frozen=container["State"] == FROZEN)
