"""The fc driver as the conformance suite wants it, on a stand-in, directly and over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from sandmeshd.auth.channels import open_channel
from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.conformance import Boundary, Subject
from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.rpc.registrations import driver_service
from sandmeshd.runtime.rpc.server import open_server
from tests.clouds.function_compute import KEYS, StandIn
from tests.conformance.conftest import below

Open = Callable[[], AbstractAsyncContextManager[Driver]]


def settings_of(cloud: StandIn, paths: MeshPaths) -> FcSettings:
    """Return the settings of a driver on a stand-in."""
    [(key, secret)] = KEYS.items()
    return FcSettings(
        paths=paths,
        endpoint=cloud.endpoint,
        access_key_id=key,
        access_key_secret=SecretStr(secret),
        egress=EgressSettings(mesh_secret=SecretStr("the secret of a mesh of the suite")),
        start_timeout=60,
        lost_seconds=2,
    )


def direct(settings: FcSettings) -> Open:
    """Open the driver itself."""
    return lambda: open_plugin("fc", settings)


def remote(settings: FcSettings) -> Open:
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


def leftovers(cloud: StandIn) -> set[str]:
    """Return every session that is billed, and every instance that runs."""
    running = [one for one in cloud.ledger if one.instance is not None and one.instance.exit_code is None]
    return {str(one.body["sessionId"]) for one in (*cloud.living, *running)}


def processes(cloud: StandIn, sandbox_id: str) -> list[int]:
    """Return a sandbox's processes, PID 1 first."""
    instance = cloud.session_of(sandbox_id).instance
    assert instance is not None
    return below(instance.pid)


def subject_of(cloud: StandIn, settings: FcSettings, opened: Open) -> Subject:
    """Return a driver on a mesh of its own."""
    return Subject(
        open=opened,
        mesh_id=settings.paths.mesh_id,
        template="base",
        unprepared=None,
        leftovers=lambda: leftovers(cloud),
        boundary=Boundary(
            writable_mounts=frozenset(),
            processes=lambda sandbox_id: processes(cloud, sandbox_id),
            hidden=(str(Path(__file__).parent),),
        ),
    )
