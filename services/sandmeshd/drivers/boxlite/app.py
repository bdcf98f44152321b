"""The boxlite driver's entry point."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import DriverPlugin
from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.egress import Resolver
from sandmeshd.templates import Template


@asynccontextmanager
async def open_driver(
    settings: BoxliteSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; its sandboxes that live are adopted.

    Raises:
        RuntimeUnavailable: This machine starts no guests, or another driver uses the home.
        InvalidArgument: A setting has no effect with this driver.
    """
    # The library is an extra, and the settings are read where it is not installed too.
    from sandmeshd.drivers.boxlite import composition  # noqa: PLC0415
    from sandmeshd.drivers.boxlite.probe import check_guests  # noqa: PLC0415

    check_guests()
    async with composition.open_driver(settings, resolver, templates) as driver:
        yield driver


PLUGIN = DriverPlugin(BoxliteSettings, open_driver)
