"""Opens the gvisor driver, where the engine has what it needs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.engine import app as docker
from sandmeshd.drivers.engine.engine import open_engine
from sandmeshd.drivers.engine.reach import check_url, tls_context
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.gvisor.runtime import check_runtime
from sandmeshd.templates import Template


@asynccontextmanager
async def open_driver(
    settings: DockerSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh as the docker driver is opened; sandboxes run on gVisor's kernel.

    Raises:
        InvalidArgument: What sandboxes are to see of the host is not there, or may not be where it is wanted.
        RuntimeUnavailable: The engine does not answer, sees other files or has no runsc with the arguments that
            are needed, or libseccomp is missing; `facts["fix"]` says what to do.
    """
    chosen = settings.model_copy(update={"driver": "gvisor"})
    check_url(chosen)
    async with open_engine(settings.url, tls_context(settings)) as engine:
        check_runtime(await engine.info(), ends_with_driver=settings.ends_with_driver)
    async with docker.open_driver(chosen, resolver, templates) as driver:
        yield driver
