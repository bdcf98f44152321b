"""The core of the conformance suite on the boxlite driver, over gRPC, on a machine that starts guests."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandmeshd.auth.channels import open_channel
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.drivers.boxlite.boxes import shims
from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.conformance import Boundary, Requirement, Subject
from sandmeshd.drivers.conformance.suite import CORE
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.rpc.registrations import driver_service
from sandmeshd.runtime.rpc.server import open_server
from tests.engine import own_engine

pytestmark = [pytest.mark.needs("root", "docker", "guests"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    """Build the image on an engine, and save it as `docker save` does."""
    with tempfile.TemporaryDirectory(prefix="sm-boxes-") as name:
        folder = Path(name)
        with own_engine(folder) as (url, _):
            saved = ["/usr/bin/docker", "save", "sandmesh/base:latest", "-o", str(folder / "base.tar")]
            subprocess.run(saved, check=True, env={**os.environ, "DOCKER_HOST": url})
        yield folder


@pytest.fixture
def subject(images: Path, paths: MeshPaths) -> Subject:
    """Return the driver on a mesh of its own."""
    settings = BoxliteSettings(paths=paths, images=images)

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Driver]:
        address = f"unix://{paths.services}/d"
        async with (
            open_plugin("boxlite", settings) as driver,
            open_server([address], [driver_service(DriverServicer(driver))]),
            open_channel(address) as channel,
        ):
            yield RemoteDriver(channel)

    def running() -> list[int]:
        return [pid for pid, _ in shims(settings.home_directory)]

    return Subject(
        open=opened,
        mesh_id=paths.mesh_id,
        template="base",
        unprepared=None,
        leftovers=lambda: {str(pid) for pid in running()},
        boundary=Boundary(
            writable_mounts=frozenset(),
            # A guest's processes are its own kernel's: this machine sees the process that runs it.
            processes=lambda sandbox_id: running(),
            hidden=(str(Path(__file__).parent),),
        ),
    )


@pytest.mark.parametrize("requirement", CORE, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject) -> None:
    await requirement(subject)
