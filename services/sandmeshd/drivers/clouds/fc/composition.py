"""Opens the fc driver: the vendor's API, the mesh's keys, and what earlier drivers left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.api.settings import check_no_host_files
from sandmeshd.drivers.clouds.fc.driver import FcDriver
from sandmeshd.drivers.clouds.fc.service import FunctionCompute
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.decorators.egress_guard import open_egress
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.node.seccomp import build_filters
from sandmeshd.templates import Template, load_templates


@asynccontextmanager
async def open_driver(
    settings: FcSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; its sandboxes that live are adopted.

    They outlive it, unless `ends_with_driver` says otherwise.

    Raises:
        RuntimeUnavailable: Function Compute does not answer, or refuses; `facts["fix"]` says what to do.
        InvalidArgument: A setting has no effect with this driver.
    """
    check_no_host_files(settings, "a cloud")
    keys = MeshKeys(_secret(settings), settings.paths.mesh_id)
    _check_keys(settings)
    filters = await asyncio.to_thread(build_filters)
    service = FunctionCompute(settings)
    await service.check()
    driver = FcDriver(settings, service, keys, load_templates() if templates is None else templates, filters.user)
    try:
        await driver.adopt()
        async with open_egress(driver, settings.paths, settings.egress, resolver) as guarded:
            yield guarded
    finally:
        await driver.close()


def _secret(settings: FcSettings) -> str:
    secret = settings.egress.mesh_secret
    if secret is None:
        fix = "give its service the mesh's secret (SANDMESH_MESH_SECRET)"
        raise RuntimeUnavailable(
            f"the fc driver derives its agents' tokens from the mesh's secret: {fix}", {"fix": fix}
        )
    return secret.get_secret_value()


def _check_keys(settings: FcSettings) -> None:
    values = {
        "SANDMESH_FC_ACCESS_KEY_ID": settings.access_key_id,
        "SANDMESH_FC_ACCESS_KEY_SECRET": settings.access_key_secret.get_secret_value(),
    }
    missing = [name for name, value in values.items() if not value]
    if missing:
        fix = f"set {' and '.join(missing)}"
        raise RuntimeUnavailable(f"the fc driver has no access key: {fix}", {"fix": fix})
