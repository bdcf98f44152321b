"""The kubernetes driver's entry point."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import DriverPlugin
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.templates import Template


@asynccontextmanager
async def open_driver(
    settings: KubernetesSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; the sandboxes that carry its label are adopted.

    Raises:
        RuntimeUnavailable: The API server does not answer, or refuses; `facts["fix"]` says what to do.
        InvalidArgument: A setting has no effect with this driver.
    """
    # The client of clusters is an extra, and the settings are read where it is not installed too.
    from sandmeshd.drivers.kubernetes import composition  # noqa: PLC0415

    async with composition.open_driver(settings, resolver, templates) as driver:
        yield driver


PLUGIN = DriverPlugin(KubernetesSettings, open_driver)
