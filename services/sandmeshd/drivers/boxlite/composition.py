"""Opens the boxlite driver: BoxLite's runtime, and what earlier drivers left in its home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.settings import check_no_host_files
from sandmeshd.drivers.boxlite.boxes import open_boxes
from sandmeshd.drivers.boxlite.driver import BoxliteDriver
from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.decorators.egress_guard import open_egress
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.node.seccomp import build_filters
from sandmeshd.templates import Template, load_templates


@asynccontextmanager
async def open_driver(
    settings: BoxliteSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh, whether guests start here or not; its sandboxes that live are adopted.

    Raises:
        RuntimeUnavailable: Another driver uses the home.
        InvalidArgument: A setting has no effect with this driver.
    """
    check_no_host_files(settings, "a box")
    filters = await asyncio.to_thread(build_filters)
    settings.image_directory.mkdir(parents=True, exist_ok=True)
    async with open_boxes(settings.home_directory) as boxes:
        known = load_templates() if templates is None else templates
        driver = BoxliteDriver(settings, boxes, known, filters.user)
        await driver.adopt()
        following = asyncio.create_task(driver.follow())
        try:
            async with open_egress(driver, settings.paths, settings.egress, resolver) as guarded:
                yield guarded
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await driver.close()
