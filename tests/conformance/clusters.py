"""The kubernetes driver as the conformance suite wants it, directly and over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from sandmeshd.auth.channels import open_channel
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.drivers.conformance import Boundary, Requirement, Subject
from sandmeshd.drivers.kubernetes.names import object_name, selector
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.rpc.registrations import driver_service
from sandmeshd.runtime.rpc.server import open_server
from tests.cluster import Cluster
from tests.conformance.conftest import below, own_paths
from tests.engine import query

Open = Callable[[], AbstractAsyncContextManager[Driver]]

AT_ONCE = 4
"""The requirements that are checked at the same time: each waits for the kubelet most of its own."""


def settings_of(cluster: Cluster, paths: MeshPaths) -> KubernetesSettings:
    """Return the settings of a driver on a cluster, whose pods this machine reaches."""
    return KubernetesSettings(paths=paths, kubeconfig=cluster.kubeconfig, start_timeout=120, reach="pods")


def direct(settings: KubernetesSettings) -> Open:
    """Open the driver itself."""
    return lambda: open_plugin("kubernetes", settings)


def remote(settings: KubernetesSettings) -> Open:
    """Open the driver behind a server."""

    @asynccontextmanager
    async def open_remote() -> AsyncGenerator[Driver]:
        address = f"unix://{settings.paths.services}/d"
        async with (
            direct(settings)() as driver,
            open_server([address], [driver_service(DriverServicer(driver))]),
            open_channel(address) as channel,
        ):
            yield RemoteDriver(channel)

    return open_remote


def leftovers(cluster: Cluster, mesh_id: str) -> set[str]:
    """Return every pod and Secret of a mesh."""
    return {name for kind in ("pods", "secrets") for name in cluster.names(kind, selector(mesh_id))}


def processes(cluster: Cluster, pod: str) -> list[int]:
    """Return the processes of a sandbox's pod, PID 1 first."""
    wanted = {"io.kubernetes.pod.name": pod, "io.kubernetes.docker.type": "container"}
    for one in query(cluster.engine, "/containers/json"):
        if wanted.items() <= one["Labels"].items():
            container = query(cluster.engine, f"/containers/{one['Id']}/json")
            return below(container["State"]["Pid"])
    raise AssertionError(f"the pod {pod} has no container")


async def check_apart(
    cluster: Cluster,
    requirement: Requirement,
    way: Callable[[KubernetesSettings], Open],
    room: asyncio.Semaphore,
    **changed: object,
) -> None:
    """Check a requirement on a mesh of its own, with some settings changed, as soon as there is room for one more."""
    async with room:
        with own_paths() as paths:
            settings = settings_of(cluster, paths).model_copy(update=changed)
            await requirement(subject_of(cluster, settings, way(settings)))
            assert await asyncio.to_thread(leftovers, cluster, paths.mesh_id) == set()


def subject_of(cluster: Cluster, settings: KubernetesSettings, opened: Open) -> Subject:
    """Return a driver on a mesh of its own."""
    mesh_id = settings.paths.mesh_id
    return Subject(
        open=opened,
        mesh_id=mesh_id,
        template="base",
        unprepared=None,
        leftovers=lambda: leftovers(cluster, mesh_id),
        boundary=Boundary(
            writable_mounts=frozenset(),
            processes=lambda sandbox_id: processes(cluster, object_name(mesh_id, sandbox_id)),
            hidden=(str(Path(__file__).parent),),
            interfaces=("lo", "eth0"),
        ),
    )
