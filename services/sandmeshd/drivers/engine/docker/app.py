"""The docker driver: containers of an engine's own runtime."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import DriverPlugin
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.templates import Template


@asynccontextmanager
async def open_driver(
    settings: DockerSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; the sandboxes that carry its label are adopted.

    Raises:
        InvalidArgument: A path of the host that sandboxes are to see does not exist, or may not be mounted there.
        RuntimeUnavailable: The engine does not answer or there is no way to its agents, or libseccomp is missing;
            `facts["fix"]` says what to do.
    """
    # The client of the engine is an extra, and the settings are read where it is not installed too.
    from sandmeshd.drivers.engine import app  # noqa: PLC0415

    async with app.open_driver(settings, resolver, templates) as driver:
        yield driver


PLUGIN = DriverPlugin(DockerSettings, open_driver)
