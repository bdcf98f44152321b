"""The conformance suite on the docker driver, directly and over gRPC, on an engine of the tests' own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from sandmeshd.drivers.conformance import REQUIREMENTS, Boundary, Requirement, Subject
from sandmeshd.drivers.docker.app import open_driver
from sandmeshd.drivers.docker.posture import MESH, container_name
from sandmeshd.drivers.docker.settings import DockerSettings
from sandmeshd.drivers.interface import Driver
from sandmeshd.drivers.remote import RemoteDriver
from sandmeshd.drivers.servicer import DriverServicer
from sandmeshd.runtime.channels import open_channel
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.registrations import driver_service
from sandmeshd.runtime.serving import open_server
from tests.conformance.conftest import below
from tests.engine import ask

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]

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


def _direct(settings: DockerSettings) -> Open:
    return lambda: open_driver(settings)


def _remote(settings: DockerSettings) -> Open:
    @asynccontextmanager
    async def open_remote() -> AsyncGenerator[Driver]:
        address = f"unix://{settings.paths.services}/d"
        async with (
            open_driver(settings) as driver,
            open_server([address], [driver_service(DriverServicer(driver))]),
            open_channel(address) as channel,
        ):
            yield RemoteDriver(channel)

    return open_remote


def leftovers(url: str, paths: MeshPaths) -> set[str]:
    """Give everything on engine and machine that belongs to a mesh."""
    containers = {f"container {one['Names']}" for one in ask(url, "/containers/json?all=1") if _is_of(one, paths)}
    volumes = {f"volume {one['Name']}" for one in ask(url, "/volumes")["Volumes"] or ()}
    roots = (paths.sandboxes, paths.agents)
    return containers | volumes | {str(path) for root in roots for path in root.glob("*")}


def _is_of(container: dict[str, dict[str, str]], paths: MeshPaths) -> bool:
    return container["Labels"].get(MESH) == paths.mesh_id


def processes(url: str, paths: MeshPaths, sandbox_id: str) -> list[int]:
    """Give a sandbox's processes, PID 1 first."""
    container = ask(url, f"/containers/{container_name(paths.mesh_id, sandbox_id)}/json")
    return below(container["State"]["Pid"])


@pytest.fixture(params=[_direct, _remote], ids=["direct", "grpc"])
def subject(request: pytest.FixtureRequest, paths: MeshPaths, engine: str) -> Subject:
    """Give the driver on a mesh of its own."""
    settings = DockerSettings(paths=paths, url=engine)
    return Subject(
        open=request.param(settings),
        mesh_id=paths.mesh_id,
        template="base",
        unprepared=None,
        leftovers=lambda: leftovers(engine, paths),
        boundary=Boundary(
            writable_mounts=WRITABLE
            | ({"/sys/fs/cgroup"} if ask(engine, "/info")["CgroupVersion"] == "1" else set[str]()),
            processes=lambda sandbox_id: processes(engine, paths, sandbox_id),
            hidden=(str(paths.state_root), str(paths.runtime_root), str(Path(__file__).parent)),
        ),
    )


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject) -> None:
    await requirement(subject)
