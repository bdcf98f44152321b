"""The gvisor driver: the docker driver with gVisor's runtime, where the engine has what it needs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import DriverPlugin
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.engine.gvisor.runtime import check_runtime
from sandmeshd.drivers.engine.runtimes import GVISOR, RuntimeProfile
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.templates import Template


class GvisorSettings(DockerSettings):
    """Settings of the gvisor driver: those of the Docker engine that it runs on."""

    profile: ClassVar[RuntimeProfile] = GVISOR
    """What is the driver's own."""


@asynccontextmanager
async def open_driver(
    settings: GvisorSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh as the docker driver is opened; sandboxes run on gVisor's kernel.

    Raises:
        InvalidArgument: A path of the host that sandboxes are to see does not exist, or may not be mounted there.
        RuntimeUnavailable: The engine does not answer, sees other files or has no runsc with the arguments that
            are needed, or libseccomp is missing; `facts["fix"]` says what to do.
    """
    # The client of the engine is an extra, and the settings are read where it is not installed too.
    from sandmeshd.drivers.engine import app  # noqa: PLC0415
    from sandmeshd.drivers.engine.connection import check_url, tls_context  # noqa: PLC0415
    from sandmeshd.drivers.engine.engine import open_engine  # noqa: PLC0415

    check_url(settings)
    async with open_engine(settings.url, tls_context(settings)) as engine:
        check_runtime(await engine.info(), ends_with_driver=settings.ends_with_driver)
    async with app.open_driver(settings, resolver, templates) as driver:
        yield driver


PLUGIN = DriverPlugin(GvisorSettings, open_driver)
