"""The fc driver, against a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import (
    CapabilityMissing,
    InvalidArgument,
    PoolExhausted,
    RuntimeUnavailable,
    SandboxLost,
    SandboxNotFound,
    SandboxStartFailed,
    TemplateBuildFailed,
)
from sandmeshd.agentlink import addresses
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.clouds.fc import service
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.requirements import InstanceSize, nano_price, size_of
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.egress import EgressSettings
from tests.clouds.function_compute import KEYS, StandIn
from tests.clouds.region import certified

from .asking import create, delete, ended, inspect, listed

GIGABYTE = 1 << 30


pytestmark = pytest.mark.needs("root")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(120):
        yield


async def test_a_sandbox_is_a_session_until_it_is_deleted(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings) as driver:
        made = await create(driver, settings)
        assert len(cloud.living) == 1
        done = await run(made, "id -u; echo a > /workspace/x; cat /workspace/x")
        assert done.stdout == "1000\na\n"
        await delete(driver)
        assert cloud.living == []


async def test_a_function_is_shared_and_shut_and_has_no_keys(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings) as driver:
        made = await create(driver, settings)
        await create(driver, settings, "two")
        [function] = cloud.functions.values()
        assert len(function.sessions) == 2
        body = function.body
        assert (body["internetAccess"], body["disableInjectCredentials"]) == (False, "All")
        assert "vpcConfig" not in body
        assert "role" not in body
        assert "environmentVariables" not in body
        sessions = [session.body for session in function.sessions.values()]
        assert {(session["allowInternetAccess"], session["disableSessionIdReuse"]) for session in sessions} == {
            (False, True)
        }
        seen = (await run(made, "env; cat /proc/*/environ /proc/*/cmdline")).stdout
        assert not [text for pair in KEYS.items() for text in pair if text in seen]
        assert cloud.session_of("one").body["sessionId"] not in seen


async def test_a_restarted_driver_finds_its_sandboxes_by_their_sessions(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings) as first:
        made = await create(first, settings, environment={"A": "b"})
        token = pb.InstallTokenRequest(sandbox_id="one", fencing_token=7, record_labels={"session": "s"})
        await first.install_token(token)
    async with open_plugin("fc", settings) as second:
        [found] = await listed(second, settings)
        assert dict(found.record_labels) == {"session": "s"}
        found.record_labels.clear()
        assert found == made
        await delete(second)
    assert cloud.living == []


async def test_with_another_secret_a_sandbox_is_only_deleted(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings) as first:
        await create(first, settings)
    other = EgressSettings(mesh_secret=SecretStr("another secret, as after a loss of it"))
    async with open_plugin("fc", settings.model_copy(update={"egress": other})) as second:
        [found] = await listed(second, settings)
        assert (found.sandbox_id, found.state) == ("one", pb.RUNTIME_STATE_ENDED)
        assert "mesh's secret" in found.end_detail
        await delete(second)
        assert cloud.living == []
        assert cloud.functions == {}


async def test_what_a_killed_driver_had_begun_is_found_and_made_again(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings) as driver:
        await create(driver, settings, "first")
        [name] = cloud.functions
        begun = {"sessionId": "s-one-abcdefghijkl", "sessionTTLInSeconds": 600, "sessionIdleTimeoutInSeconds": 0}
        nameless = {**begun, "sessionId": f"h-{'a' * 26}-abcdefghijkl"}
        for body in (begun, nameless):
            await service.FunctionComputeApi(settings).create_session(name, body)
    async with open_plugin("fc", settings) as driver:
        states = {one.sandbox_id: one.state for one in await listed(driver, settings)}
        assert states == {"first": pb.RUNTIME_STATE_RUNNING, "one": pb.RUNTIME_STATE_ENDED}
        assert len(cloud.living) == 2
        await create(driver, settings)
        assert len(cloud.living) == 2
        for one in ("one", "first"):
            await delete(driver, one)
        assert cloud.living == []


async def test_long_ids_have_sessions_too(cloud: StandIn, settings: FcSettings) -> None:
    name = f"a.{'b' * 126}"
    async with open_plugin("fc", settings) as driver:
        made = await create(driver, settings, name)
        assert (await run(made, "echo hello")).stdout == "hello\n"
        assert max(len(one.body["sessionId"]) for one in cloud.living) <= 64
    async with open_plugin("fc", settings) as driver:
        assert [one.sandbox_id for one in await listed(driver, settings)] == [name]
        await delete(driver, name)
    assert cloud.living == []


async def test_links_that_are_cut_lose_no_sandbox(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings) as driver:
        made = await create(driver, settings)
        for _ in range(5):
            cloud.cut()
            assert (await run(made, "echo on")).stdout == "on\n"
        assert (await inspect(driver)).state == pb.RUNTIME_STATE_RUNNING


async def test_a_session_that_its_time_ended_is_lost_with_that_reason(cloud: StandIn, settings: FcSettings) -> None:
    short = settings.model_copy(update={"session_seconds": 15})
    async with open_plugin("fc", short) as driver:
        await create(driver, short)
        assert "session's 15 s are over" in (await ended(driver, short)).end_detail
        with pytest.raises(SandboxLost) as lost:
            await driver.install_token(pb.InstallTokenRequest(sandbox_id="one", fencing_token=1))
        assert "15 s are over" in lost.value.facts["detail"]
        assert cloud.living == []
        await delete(driver)
        with pytest.raises(SandboxNotFound):
            await inspect(driver)


async def test_a_session_that_somebody_deleted_is_lost(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings) as driver:
        await create(driver, settings)
        body = cloud.session_of("one").body
        [name] = cloud.functions
        await service.FunctionComputeApi(settings).delete_session(name, body["sessionId"])
        assert "deleted by somebody else" in (await ended(driver, settings)).end_detail
    assert len(cloud.ledger) == 1, "a late link made the vendor begin another session"


@pytest.mark.parametrize("action", StandIn.mutations)
async def test_a_lost_answer_makes_no_second_one(cloud: StandIn, settings: FcSettings, action: str) -> None:
    cloud.lost[action] = 1
    async with open_plugin("fc", settings) as driver:
        await create(driver, settings)
        assert len(cloud.living) == 1
        await delete(driver)
    assert (len(cloud.ledger), cloud.living) == (1, [])
    assert cloud.lost[action] == 0


async def test_throttled_requests_wait(cloud: StandIn, settings: FcSettings) -> None:
    cloud.throttled.update({"ListFunctions": 1, "CreateSession": 2, "DeleteSession": 2})
    async with open_plugin("fc", settings) as driver:
        await create(driver, settings)
        await delete(driver)
    assert (cloud.requests["CreateSession"], cloud.requests["DeleteSession"], cloud.living) == (3, 3, [])


async def test_throttling_without_end_says_that_there_is_no_room(cloud: StandIn, settings: FcSettings) -> None:
    cloud.throttled["ListFunctions"] = 1000
    with pytest.raises(PoolExhausted, match=r"throttles: ResourceExhausted.*request [0-9a-f]{16}"):
        await service.FunctionComputeApi(settings, patience=0.5).check()


async def test_a_function_that_is_pending_is_waited_for(cloud: StandIn, settings: FcSettings) -> None:
    cloud.pending = 2
    async with open_plugin("fc", settings) as driver:
        await create(driver, settings)
    assert cloud.requests["GetFunction"] == 3


async def test_an_image_that_cannot_be_used_ends_a_create(cloud: StandIn, settings: FcSettings) -> None:
    cloud.state = "Failed"
    async with open_plugin("fc", settings) as driver:
        with pytest.raises(TemplateBuildFailed, match="sandmesh/base:latest cannot be used: the image is Failed; push"):
            await create(driver, settings)
    assert cloud.ledger == []


async def test_functions_of_older_generations_go_with_their_last_session(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings) as driver:
        await create(driver, settings, "old-1")
        await create(driver, settings, "old-2")
    [old] = cloud.functions
    async with open_plugin("fc", settings.model_copy(update={"tag": "next"})) as driver:
        await create(driver, settings, "new")
        assert len(cloud.functions) == 2
        await delete(driver, "old-1")
        assert old in cloud.functions
        await delete(driver, "old-2")
        assert old not in cloud.functions
        assert len(cloud.functions) == 1
        await delete(driver, "new")
        assert len(cloud.functions) == 1, "the one of now stays"


async def test_sandboxes_that_end_with_their_driver_leave_nothing(cloud: StandIn, settings: FcSettings) -> None:
    async with open_plugin("fc", settings.model_copy(update={"ends_with_driver": True})) as driver:
        await create(driver, settings)
    assert (cloud.living, cloud.functions) == ([], {})


@pytest.mark.parametrize(
    ("memory", "cpu", "size"),
    [
        (0, 0, InstanceSize(2000, 2048)),
        (GIGABYTE, 1000, InstanceSize(1000, 1152)),
        (GIGABYTE, 4000, InstanceSize(4000, 4096)),
        (8 * GIGABYTE, 1000, InstanceSize(2050, 8320)),
        (32 << 20, 10, InstanceSize(50, 128)),
    ],
)
def test_limits_are_rounded_up_to_the_vendors_sizes(
    memory: int, cpu: int, size: InstanceSize, settings: FcSettings
) -> None:
    assert size_of(sandbox_pb2.Limits(memory_bytes=memory, cpu_millis=cpu), settings) == size


def test_a_second_costs_what_the_price_table_says_of_the_size_that_is_rented(settings: FcSettings) -> None:
    priced = settings.model_copy(update={"cpu_price": 0.36, "memory_price": 0.036})
    # 1 processor and 2 GiB.
    limits = sandbox_pb2.Limits(memory_bytes=(2 << 30) - (96 << 20), cpu_millis=1000)
    assert nano_price(limits, priced) == round((0.36 + 2 * 0.036) / 3600 * 1e9)
    assert nano_price(limits, settings) == 0


async def test_rounded_limits_are_told_and_what_is_too_much_is_refused(cloud: StandIn, settings: FcSettings) -> None:
    limits = sandbox_pb2.Limits(memory_bytes=GIGABYTE, cpu_millis=1010)
    async with open_plugin("fc", settings) as driver:
        made = await create(driver, settings, limits=limits)
        assert "1152 MiB" in made.enforced["instance"]
        assert "1.05 processors" in made.enforced["instance"]
        assert "no internet access, by the vendor" in made.enforced["network"]
        for much in ({"cpu_millis": 17_000}, {"memory_bytes": 33 * GIGABYTE}, {"pids": 5}, {"disk_bytes": 5}):
            [name] = much
            with pytest.raises(CapabilityMissing) as refused:
                await create(driver, settings, "two", limits=sandbox_pb2.Limits(**much))
            assert name.partition("_")[0] in refused.value.facts["needs"]


def test_a_session_of_more_than_six_hours_is_refused_by_name(settings: FcSettings) -> None:
    with pytest.raises(ValidationError, match="21600 s, which are 6 hours"):
        FcSettings(paths=settings.paths, session_seconds=21_601)


@pytest.mark.parametrize(
    ("changed", "fix"),
    [
        ({"access_key_id": ""}, "set SANDMESH_FC_ACCESS_KEY_ID"),
        ({"access_key_id": "LTAI-other"}, "set SANDMESH_FC_ACCESS_KEY_ID to a key that exists"),
        ({"access_key_secret": SecretStr("wrong")}, "set SANDMESH_FC_ACCESS_KEY_SECRET to the secret of that key"),
        ({"egress": EgressSettings()}, "SANDMESH_MESH_SECRET"),
    ],
)
async def test_wrong_keys_are_named(cloud: StandIn, settings: FcSettings, changed: dict[str, Any], fix: str) -> None:
    with pytest.raises(RuntimeUnavailable) as refused:
        async with open_plugin("fc", settings.model_copy(update=changed)):
            pass
    assert fix in refused.value.facts["fix"]
    assert "wrong" not in str(refused.value)


async def test_a_wrong_clock_missing_rights_and_no_answer_are_named(
    cloud: StandIn, settings: FcSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.clock = 1200
    with pytest.raises(RuntimeUnavailable, match="set this machine's clock"):
        await service.FunctionComputeApi(settings).check()
    cloud.clock, cloud.denied = 0, {"CreateSession"}
    async with open_plugin("fc", settings) as driver:
        with pytest.raises(RuntimeUnavailable, match=r"AccessDenied.*\(request [0-9a-f]{16}\): grant"):
            await create(driver, settings)
        assert await listed(driver, settings) == []
    nowhere = settings.model_copy(update={"endpoint": "http://127.0.0.1:9", "region_id": "cn-nowhere"})
    with pytest.raises(
        RuntimeUnavailable, match=r"does not answer at 127\.0\.0\.1:9.*SANDMESH_FC_REGION_ID .cn-nowhere"
    ):
        await service.FunctionComputeApi(nowhere, patience=0.1).check()


async def test_files_of_this_machine_are_refused(settings: FcSettings) -> None:
    with pytest.raises(InvalidArgument, match="a cloud does not see this machine's files"):
        async with open_plugin("fc", settings.model_copy(update={"workspace_roots": ("/srv",)})):
            pass


async def test_an_outage_of_the_gateway_ends_no_sandbox_even_while_the_driver_restarts(
    cloud: StandIn, settings: FcSettings
) -> None:
    settings = settings.model_copy(update={"lost_seconds": 0.3})
    async with open_plugin("fc", settings) as first:
        await create(first, settings, environment={"A": "b"})
        await first.install_token(
            pb.InstallTokenRequest(sandbox_id="one", fencing_token=7, record_labels={"session": "s"})
        )
    cloud.is_silent = True
    async with open_plugin("fc", settings) as second:
        assert [one.state for one in await listed(second, settings)] == [pb.RUNTIME_STATE_RUNNING]
        with pytest.raises(SandboxLost):
            await second.install_token(pb.InstallTokenRequest(sandbox_id="one", fencing_token=8))
        cloud.is_silent = False
        # What its agent keeps is read as soon as it can be reached.
        found = await inspect(second)
        while not found.record_labels:
            await asyncio.sleep(0.02)
            found = await inspect(second)
        assert (found.state, dict(found.record_labels)) == (pb.RUNTIME_STATE_RUNNING, {"session": "s"})
        assert dict(found.spec.environment) == {"A": "b"}
        cloud.is_silent, cloud.unheard = True, asyncio.Queue()
        # Again, since a link that is being made is not yet one that can be cut.
        while cloud.unheard.empty():
            cloud.cut()
            await asyncio.sleep(0.05)
        # As many as take several times the seconds after which it would be lost.
        for _ in range(12):
            await asyncio.wait_for(cloud.unheard.get(), 30)
        assert (await inspect(second)).state == pb.RUNTIME_STATE_RUNNING
        await delete(second)
    assert cloud.living == []


async def test_a_proxy_that_strips_upgrades_is_named_and_leaves_nothing(cloud: StandIn, settings: FcSettings) -> None:
    cloud.strips_upgrades = True
    async with open_plugin("fc", settings.model_copy(update={"start_timeout": 3})) as driver:
        with pytest.raises(SandboxStartFailed, match="not 101: does a proxy in between pass on WebSockets"):
            await create(driver, settings)
        assert await listed(driver, settings) == []
    assert cloud.living == []


async def test_an_endpoint_whose_certificate_does_not_fit_is_named_and_leaves_nothing(
    cloud: StandIn, settings: FcSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    certified(other)
    monkeypatch.setenv("SSL_CERT_FILE", str(other / "authority.pem"))
    addresses.system_authorities.cache_clear()
    async with open_plugin("fc", settings.model_copy(update={"start_timeout": 3})) as driver:
        with pytest.raises(SandboxStartFailed, match="certificate verify failed"):
            await create(driver, settings)
        assert await listed(driver, settings) == []
    assert cloud.living == []


async def test_an_endpoint_whose_certificate_is_another_hosts_is_named_and_leaves_nothing(
    cloud: StandIn, settings: FcSettings
) -> None:
    cloud.host = "127.0.0.1"
    async with open_plugin("fc", settings.model_copy(update={"start_timeout": 3})) as driver:
        with pytest.raises(SandboxStartFailed, match=r"certificate is not valid for '127\.0\.0\.1'"):
            await create(driver, settings)
        assert await listed(driver, settings) == []
    assert cloud.living == []


async def test_an_image_of_another_region_is_named_with_what_to_do(cloud: StandIn, settings: FcSettings) -> None:
    cloud.state = "Failed"
    elsewhere = settings.model_copy(update={"registry": "registry.cn-beijing.aliyuncs.com"})
    async with open_plugin("fc", elsewhere) as driver:
        with pytest.raises(TemplateBuildFailed, match=r"cn-beijing\S*/base:latest cannot be used.*account and region"):
            await create(driver, elsewhere)
    assert cloud.living == []
