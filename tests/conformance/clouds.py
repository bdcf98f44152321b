"""The drivers of clouds as the conformance suite wants them, on stand-ins, directly and over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from sandmeshd.auth.channels import open_channel
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.settings import CloudSettings
from sandmeshd.drivers.conformance import Boundary, Requirement, Subject
from sandmeshd.drivers.conformance.requirements import isolation, lifecycle, limits
from sandmeshd.drivers.conformance.suite import REQUIREMENTS
from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.rpc.registrations import driver_service
from sandmeshd.runtime.rpc.server import open_server
from tests.clouds.agent_run import StandIn as AgentRun
from tests.clouds.region import KEYS, Region
from tests.conformance.conftest import below

NOT_OF_CLOUDS: frozenset[Requirement] = frozenset(
    {
        # The size is the limit: processors are rounded up, and what exceeds the memory ends the instance.
        limits.a_command_that_wants_too_much_memory_ends_and_the_sandbox_goes_on,
        limits.a_cell_that_wants_too_much_memory_ends_and_the_next_finds_a_kernel,
        limits.many_small_processes_that_want_too_much_memory_leave_the_sandbox_answering,
        limits.memory_that_is_full_of_files_leaves_the_sandbox_answering,
        limits.busy_code_gets_no_more_than_its_share_of_a_processor,
        # Mounts are the instance's own.
        isolation.user_code_writes_only_where_it_may,
    }
)
SUITE: tuple[Requirement, ...] = tuple(requirement for requirement in REQUIREMENTS if requirement not in NOT_OF_CLOUDS)

IN_BAD_WEATHER: tuple[Requirement, ...] = (
    lifecycle.sandboxes_outlive_their_driver_and_are_adopted,
    lifecycle.creates_of_one_id_at_once_give_one_sandbox,
    lifecycle.several_sandboxes_are_created_at_once,
    lifecycle.a_cancelled_create_leaves_nothing,
)
"""What must hold whatever the API does, too."""

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


def spoil(cloud: Region) -> None:
    """Let an API take its time, throttle once and lose an answer of each kind, and what it makes become ready late."""
    cloud.delay, cloud.pending = 0.15, 1
    for action in cloud.mutations:
        cloud.throttled[action] = cloud.lost[action] = 1


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
