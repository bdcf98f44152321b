"""Opens the kubernetes driver: the cluster, its policy, and the watch of its pods."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.settings import check_no_host_files
from sandmeshd.drivers.decorators.egress_guard import open_egress
from sandmeshd.drivers.egress import Resolver
from sandmeshd.drivers.kubernetes.agent_sandbox.pools import open_pools
from sandmeshd.drivers.kubernetes.cluster.admission import check_admission
from sandmeshd.drivers.kubernetes.cluster.canary import Canaries
from sandmeshd.drivers.kubernetes.cluster.credentials import open_cluster
from sandmeshd.drivers.kubernetes.cluster.lease import held_lease
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.cluster.rights import check_rights, needed_rights
from sandmeshd.drivers.kubernetes.driver import KubernetesDriver, World
from sandmeshd.drivers.kubernetes.mesh_identity import MeshIdentity, passing_identity
from sandmeshd.drivers.kubernetes.names import selector
from sandmeshd.drivers.kubernetes.pods.planner import Planner
from sandmeshd.drivers.kubernetes.pods.watch import PodWatcher
from sandmeshd.drivers.kubernetes.policy import apply_policy
from sandmeshd.drivers.kubernetes.proofs import prove
from sandmeshd.drivers.kubernetes.reach import PodReach
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.kubernetes.templates import DriverTemplates
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
    async with open_cluster(settings) as cluster, AsyncExitStack() as stack:
        reach = PodReach(cluster, _sockets(settings, cluster))
        await check_rights(cluster, needed_rights(settings, forwards=reach.forwards))
        found = DriverTemplates(settings, cluster, load_templates() if templates is None else templates)
        handler = await found.handler(settings.runtime_class)
        planner = Planner(settings, found, filters.user, await _identity(settings, cluster))
        if not settings.warm_pools:
            # First: it tells whether the namespace exists, which a list does not.
            await check_admission(cluster, planner.examples(), settings.posture)
            await apply_policy(cluster, settings.paths.mesh_id)
        lease = await stack.enter_async_context(held_lease(cluster, settings.paths.mesh_id, settings.node_id))
        if not settings.warm_pools:
            planner.proofs = await prove(settings, Canaries(settings, cluster, found.any_image()), handler)
        watcher = PodWatcher(cluster, selector(settings.paths.mesh_id), planner.kind)
        world = World(cluster, watcher, reach, lease, await _version(cluster))
        driver = KubernetesDriver(settings, world, planner)
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
                await reach.close_all()


async def _identity(settings: KubernetesSettings, cluster: Cluster) -> MeshIdentity | None:
    if settings.warm_pools:
        return await open_pools(settings, cluster)
    return passing_identity() if settings.posture == "restricted" else None


def _sockets(settings: KubernetesSettings, cluster: Cluster) -> Path | None:
    """Return where the sockets are by which agents are reached, None where their pods' addresses are."""
    forwards = settings.reach == "port-forward" or (not settings.reach and not cluster.is_inside)
    return settings.paths.runtime / "f" if forwards else None


async def _version(cluster: Cluster) -> tuple[int, int]:
    found = await cluster.get("/version")
    major, minor = (re.sub(r"\D.*", "", str(found[name])) for name in ("major", "minor"))
    return int(major or 1), int(minor or 0)
