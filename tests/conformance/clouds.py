"""The drivers of clouds as the conformance suite wants them, on stand-ins, directly and over gRPC."""

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
from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.settings import CloudSettings
from sandmeshd.drivers.conformance import Boundary, Requirement, Subject, calls, files, lifecycle, networks
from sandmeshd.drivers.conformance.suite import CORE
from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.rpc.registrations import driver_service
from sandmeshd.runtime.rpc.server import open_server
from tests.clouds.agent_run import StandIn as AgentRun
from tests.clouds.region import KEYS, Region
from tests.conformance.conftest import below

BEYOND: tuple[Requirement, ...] = (
    lifecycle.a_sandbox_in_which_nothing_went_wrong_has_no_last_words,
    calls.a_broken_link_loses_nothing_of_a_stream,
    calls.kernels_of_a_sandbox_are_apart,
    files.large_files_come_back_byte_by_byte,
    files.an_upload_that_is_cut_short_leaves_nothing,
    networks.a_named_host_is_reached_and_no_other,
    networks.a_changed_grant_holds_at_once,
    networks.a_sandbox_without_a_grant_has_no_way_out,
    networks.refusals_are_told_to_who_watches,
)
SUITE: tuple[Requirement, ...] = (*CORE, *BEYOND)
"""The core, and what else an instance can show."""

Open = Callable[[], AbstractAsyncContextManager[Driver]]


def settings_of(cloud: Region, paths: MeshPaths) -> CloudSettings:
    """Return the settings of a driver on a stand-in."""
    [(key, secret)] = KEYS.items()
    kind = AgentRunSettings if isinstance(cloud, AgentRun) else FcSettings
    return kind(
        paths=paths,
        endpoint=cloud.endpoint,
        access_key_id=key,
        access_key_secret=SecretStr(secret),
        egress=EgressSettings(mesh_secret=SecretStr("the secret of a mesh of the suite")),
        start_timeout=60,
        lost_seconds=2,
    )


def direct(settings: CloudSettings) -> Open:
    """Open the driver itself."""
    return lambda: open_plugin(settings.driver, settings)


def remote(settings: CloudSettings) -> Open:
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


def leftovers(cloud: Region) -> set[str]:
    """Return every session that is billed, and every instance that runs."""
    return {f"{one.resource} {one.begun}" for one in (*cloud.living, *cloud.running)}


def processes(cloud: Region, sandbox_id: str) -> list[int]:
    """Return a sandbox's processes, PID 1 first."""
    instance = cloud.session_of(sandbox_id).instance
    assert instance is not None
    return below(instance.pid)


def subject_of(cloud: Region, settings: CloudSettings, opened: Open) -> Subject:
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
