"""The drivers over an engine as the conformance suite wants them, directly and over gRPC."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from sandmeshd.auth.channels import open_channel
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.drivers.conformance import Boundary, Subject
from sandmeshd.drivers.engine.container_config import MESH, container_name
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.rpc.registrations import driver_service
from sandmeshd.runtime.rpc.server import open_server
from tests.conformance.conftest import below
from tests.engine import query

WRITABLE = frozenset(
    {
        "/proc",
        "/dev",
        "/dev/pts",
        "/dev/mqueue",
        "/dev/shm",
        "/tmp",
        "/home/sandbox",
        "/workspace",
        "/run/sandmesh/agent",
    }
)
Open = Callable[[], AbstractAsyncContextManager[Driver]]


def direct(settings: DockerSettings) -> Open:
    """Open the driver itself."""
    return lambda: open_plugin(settings.profile.name, settings)


def remote(settings: DockerSettings) -> Open:
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


def leftovers(url: str, paths: MeshPaths) -> set[str]:
    """Give everything on engine and machine that belongs to a mesh."""
    containers = {f"container {one['Names']}" for one in query(url, "/containers/json?all=1") if _is_of(one, paths)}
    volumes = {f"volume {volume['Name']}" for volume in query(url, "/volumes")["Volumes"] or ()}
    volumes |= {f"network {one['Name']}" for one in query(url, "/networks") if _is_of(one, paths)}
    roots = (paths.sandboxes, paths.agents, paths.node_state / "snapshots")
    return containers | volumes | {str(path) for root in roots for path in root.glob("*")}


def _is_of(container: dict[str, Any], paths: MeshPaths) -> bool:
    labels: dict[str, str] = container["Labels"] or {}
    return labels.get(MESH) == paths.mesh_id


def processes(url: str, paths: MeshPaths, sandbox_id: str) -> list[int]:
    """Give a sandbox's processes, PID 1 first."""
    container = query(url, f"/containers/{container_name(paths.mesh_id, sandbox_id)}/json")
    return below(container["State"]["Pid"])


def subject_of(settings: DockerSettings, opened: Open, writable: frozenset[str], looked_at: str = "") -> Subject:
    """Give a driver on a mesh of its own; `writable` are the mounts that user code may write to.

    An engine on another machine is looked at by its socket there.
    """
    paths, url = settings.paths, looked_at or settings.url
    networked = settings.agent_link in ("network", "port")
    ports = itertools.count(settings.agent_ports[0])
    return Subject(
        open=opened,
        mesh_id=paths.mesh_id,
        template="base",
        unprepared=None,
        leftovers=lambda: leftovers(url, paths),
        boundary=Boundary(
            writable_mounts=writable,
            processes=lambda sandbox_id: processes(url, paths, sandbox_id),
            hidden=(str(paths.state_root), str(paths.runtime_root), str(Path(__file__).parent)),
            interfaces=("lo", "eth0") if networked else ("lo",),
        ),
        lease=(lambda: next(ports)) if settings.agent_link == "port" else None,
        shared="".join(settings.workspace_roots),
    )
