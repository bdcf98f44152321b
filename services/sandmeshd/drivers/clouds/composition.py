"""Opens the driver of a cloud: the mesh's keys, the vendor's API, and what earlier drivers left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.settings import check_no_host_files
from sandmeshd.drivers.clouds.driver import CloudDriver
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.clouds.settings import CloudSettings
from sandmeshd.drivers.clouds.vendor import Vendor
from sandmeshd.drivers.decorators.egress_guard import open_egress
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.node.seccomp import build_filters
from sandmeshd.templates import Template, load_templates

MakeVendor = Callable[[MeshKeys, Mapping[str, Template]], Vendor]


@asynccontextmanager
async def open_cloud(
    settings: CloudSettings, make: MakeVendor, resolver: Resolver | None, templates: Mapping[str, Template] | None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh at the vendor that `make` returns; its sandboxes that live are adopted.

    They outlive it, unless `ends_with_driver` says otherwise.

    Raises:
        RuntimeUnavailable: The vendor does not answer, or refuses; `facts["fix"]` says what to do.
        InvalidArgument: A setting has no effect with this driver.
    """
    check_no_host_files(settings, "a cloud")
    keys = MeshKeys(_secret(settings), settings.paths.mesh_id)
    _check_keys(settings)
    filters = await asyncio.to_thread(build_filters)
    known = load_templates() if templates is None else templates
    vendor = make(keys, known)
    await vendor.check()
    driver = CloudDriver(settings, vendor, keys, known, filters.user)
    try:
        await driver.adopt()
        async with open_egress(driver, settings.paths, settings.egress, resolver) as guarded:
            yield guarded
    finally:
        await driver.close()


def _secret(settings: CloudSettings) -> str:
    secret = settings.egress.mesh_secret
    if secret is None:
        fix = "give its service the mesh's secret (SANDMESH_MESH_SECRET)"
        message = f"the {settings.driver} driver derives its agents' tokens from the mesh's secret: {fix}"
        raise RuntimeUnavailable(message, {"fix": fix})
    return secret.get_secret_value()


def _check_keys(settings: CloudSettings) -> None:
    values = {
        f"{settings.prefix_of_variables}ACCESS_KEY_ID": settings.access_key_id,
        f"{settings.prefix_of_variables}ACCESS_KEY_SECRET": settings.access_key_secret.get_secret_value(),
    }
    missing = [name for name, value in values.items() if not value]
    if missing:
        fix = f"set {' and '.join(missing)}"
        raise RuntimeUnavailable(f"the {settings.driver} driver has no access key: {fix}", {"fix": fix})
