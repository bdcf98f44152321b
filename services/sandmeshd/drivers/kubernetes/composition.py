"""Opens the kubernetes driver: the cluster, its policy, and the watch of its pods."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.api.settings import check_no_host_files
from sandmeshd.drivers.decorators.egress_guard import open_egress
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.kubernetes.cluster import Cluster
from sandmeshd.drivers.kubernetes.credentials import open_cluster
from sandmeshd.drivers.kubernetes.driver import KubernetesDriver
from sandmeshd.drivers.kubernetes.names import selector
from sandmeshd.drivers.kubernetes.planner import Planner
from sandmeshd.drivers.kubernetes.policy import apply_policy
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.kubernetes.templates import Templates
from sandmeshd.drivers.kubernetes.watch import PodWatcher
from sandmeshd.drivers.node.seccomp import build_filters
from sandmeshd.templates import Template, load_templates


@asynccontextmanager
async def open_driver(
    settings: KubernetesSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; the sandboxes that carry its label are adopted.

    They outlive it, unless `ends_with_driver` says otherwise.

    Raises:
        RuntimeUnavailable: The API server does not answer, or refuses; `facts["fix"]` says what to do.
        InvalidArgument: A setting has no effect with this driver.
    """
    check_no_host_files(settings, "a cluster")
    filters = await asyncio.to_thread(build_filters)
    async with open_cluster(settings) as cluster:
        book = load_templates() if templates is None else templates
        found = Templates(settings, cluster, book)
        await found.check_class(settings.runtime_class)
        # First: it tells whether the namespace exists, which a list does not.
        await apply_policy(cluster, settings.paths.mesh_id)
        watcher = PodWatcher(cluster, selector(settings.paths.mesh_id))
        planner = Planner(settings, found, filters.user)
        driver = KubernetesDriver(settings, cluster, watcher, planner, await _version(cluster))
        await driver.adopt()
        following = asyncio.create_task(watcher.follow())
        try:
            async with open_egress(driver, settings.paths, settings.egress, resolver) as guarded:
                yield guarded
        finally:
            try:
                await driver.close()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)


async def _version(cluster: Cluster) -> tuple[int, int]:
    found = await cluster.get("/version")
    major, minor = (re.sub(r"\D.*", "", str(found[name])) for name in ("major", "minor"))
    return int(major or 1), int(minor or 0)
