"""The fc driver's entry point."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import DriverPlugin
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.egress import Resolver
from sandmeshd.templates import Template


@asynccontextmanager
async def open_driver(
    settings: FcSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; its sandboxes that live are adopted.

    Raises:
        RuntimeUnavailable: Function Compute does not answer, or refuses; `facts["fix"]` says what to do.
        InvalidArgument: A setting has no effect with this driver.
    """
    # The vendor's library is an extra, and the settings are read where it is not installed too.
    from sandmeshd.drivers.clouds.composition import open_cloud  # noqa: PLC0415
    from sandmeshd.drivers.clouds.fc.vendor import FunctionCompute  # noqa: PLC0415

    async with open_cloud(settings, partial(FunctionCompute, settings), resolver, templates) as driver:
        yield driver


PLUGIN = DriverPlugin(FcSettings, open_driver)
