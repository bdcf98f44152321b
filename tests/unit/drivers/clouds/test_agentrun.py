"""The agentrun driver, against a stand-in: what differs from fc's, whose link, birth and records it shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import PoolExhausted, RuntimeUnavailable, SandboxStartFailed
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.clouds.agentrun import vendor
from sandmeshd.drivers.clouds.agentrun.service import AgentRunApi
from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.egress import EgressSettings
from tests.clouds.agent_run import StandIn
from tests.clouds.region import KEYS

from .asking import create, delete, ended, inspect, listed

pytestmark = pytest.mark.needs("root")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(120):
        yield


async def test_a_sandbox_is_a_runtime_until_it_is_deleted(runs: StandIn, run_settings: AgentRunSettings) -> None:
    async with open_plugin("agentrun", run_settings) as driver:
        made = await create(driver, run_settings)
        [runtime] = runs.runtimes.values()
        assert (runtime.body["artifactType"], runtime.body["sessionAffinityType"]) == ("Container", "HEADER_FIELD")
        assert (runtime.body["cpu"], runtime.body["memory"]) == (2.0, 2048)
        assert not runtime.body.keys() & {"environmentVariables", "executionRoleArn", "credentialName"}
        done = await run(made, "id -u; env; cat /proc/*/environ /proc/*/cmdline")
        assert done.stdout.startswith("1000\n")
        assert not [text for pair in KEYS.items() for text in pair if text in done.stdout]
        await delete(driver)
        assert (runs.living, runs.runtimes) == ([], {})


async def test_the_longest_names_that_settings_allow_fit(runs: StandIn, run_settings: AgentRunSettings) -> None:
    settings = run_settings.model_copy(update={"prefix": "agentscope-sandbox"})
    async with open_plugin("agentrun", settings) as driver:
        await create(driver, settings, "b" * 120)
        [runtime] = runs.runtimes.values()
        assert len(runtime.body["agentRuntimeName"]) <= 63
        await delete(driver, "b" * 120)
    assert runs.living == []


async def test_a_restarted_driver_finds_its_runtimes(runs: StandIn, run_settings: AgentRunSettings) -> None:
    async with open_plugin("agentrun", run_settings) as first:
        made = await create(first, run_settings, environment={"A": "b"})
        await first.install_token(pb.InstallTokenRequest(sandbox_id="one", fencing_token=7, record_labels={"s": "t"}))
    async with open_plugin("agentrun", run_settings) as second:
        [found] = await listed(second, run_settings)
        assert dict(found.record_labels) == {"s": "t"}
        found.record_labels.clear()
        assert found == made
        await delete(second)
    assert runs.living == []


async def test_with_another_secret_a_runtime_is_only_deleted(runs: StandIn, run_settings: AgentRunSettings) -> None:
    async with open_plugin("agentrun", run_settings) as first:
        await create(first, run_settings)
    other = EgressSettings(mesh_secret=SecretStr("another secret, as after a loss of it"))
    async with open_plugin("agentrun", run_settings.model_copy(update={"egress": other})) as second:
        [found] = await listed(second, run_settings)
        assert (found.sandbox_id, found.state) == ("one", pb.RUNTIME_STATE_ENDED)
        await delete(second)
    assert runs.living == []


@pytest.mark.parametrize("action", StandIn.mutations)
async def test_a_lost_answer_leaves_nothing_that_is_billed(
    runs: StandIn, run_settings: AgentRunSettings, action: str
) -> None:
    async with open_plugin("agentrun", run_settings) as driver:
        runs.lost[action] = 1
        await create(driver, run_settings)
        assert len(runs.ledger) == 1
        await delete(driver)
    assert (runs.living, runs.runtimes) == ([], {})


async def test_a_runtime_whose_create_was_never_answered_is_deleted_by_its_name(
    runs: StandIn, run_settings: AgentRunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "AgentRunApi", partial(AgentRunApi, patience=0.5))
    async with open_plugin("agentrun", run_settings) as driver:
        runs.lost["CreateAgentRuntime"] = 1
        # The look for what it made fails as well, until the driver gives up.
        runs.throttled["ListAgentRuntimes"] = 3
        with pytest.raises(PoolExhausted):
            await create(driver, run_settings)
        runs.throttled.clear()
        await delete(driver)
    assert len(runs.ledger) == 1
    assert (runs.living, runs.runtimes) == ([], {})


async def test_a_runtime_that_is_not_ready_is_waited_for(runs: StandIn, run_settings: AgentRunSettings) -> None:
    runs.pending = 2
    async with open_plugin("agentrun", run_settings) as driver:
        await create(driver, run_settings)
        assert runs.requests["GetAgentRuntime"] > 2
        await delete(driver)


async def test_a_runtime_that_fails_ends_a_create_with_its_reason(
    runs: StandIn, run_settings: AgentRunSettings
) -> None:
    runs.state = "CREATE_FAILED"
    async with open_plugin("agentrun", run_settings) as driver:
        with pytest.raises(SandboxStartFailed, match="CREATE_FAILED: the image is CREATE_FAILED"):
            await create(driver, run_settings)
    assert (runs.living, runs.runtimes) == ([], {})


async def test_a_delete_while_it_starts_waits_for_no_runtime(runs: StandIn, run_settings: AgentRunSettings) -> None:
    runs.pending = 10_000
    async with open_plugin("agentrun", run_settings) as driver:
        making = asyncio.create_task(create(driver, run_settings))
        while not runs.requests["GetAgentRuntime"]:  # noqa: ASYNC110 - the stand-in counts, and tells nobody
            await asyncio.sleep(0.01)
        await delete(driver)
        with pytest.raises(SandboxStartFailed, match="deleted meanwhile"):
            await making
    assert (runs.living, runs.runtimes) == ([], {})


async def test_a_runtime_that_somebody_deleted_is_lost(runs: StandIn, run_settings: AgentRunSettings) -> None:
    async with open_plugin("agentrun", run_settings) as driver:
        await create(driver, run_settings)
        [name] = runs.runtimes
        await AgentRunApi(run_settings).delete_runtime(name)
        assert (await ended(driver, run_settings)).end_detail == "its runtime was deleted by somebody else"
        await delete(driver)


async def test_an_instance_that_ends_is_told_with_the_vendors_words(
    runs: StandIn, run_settings: AgentRunSettings
) -> None:
    async with open_plugin("agentrun", run_settings) as driver:
        await create(driver, run_settings)
        instance = runs.session_of("one").instance
        assert instance is not None
        instance.end()
        assert (await ended(driver, run_settings)).end_detail.startswith("signal 9")
        assert (await inspect(driver)).state == pb.RUNTIME_STATE_ENDED
        await delete(driver)
    assert runs.living == []


async def test_more_runtimes_than_a_page_has_are_found(runs: StandIn, run_settings: AgentRunSettings) -> None:
    runs.launch = None
    api = AgentRunApi(run_settings)
    shut = {"networkConfiguration": {"networkMode": "PRIVATE"}, "containerConfiguration": {"image": "i"}, "port": 1}
    names = [f"x-{number:03}" for number in range(60)]
    for name in names:
        await api.create_runtime({**shut, "agentRuntimeName": name, "description": "", "cpu": 1.0, "memory": 1024})
    assert sorted(runtime["agentRuntimeName"] for runtime in await api.runtimes(prefix="x-")) == names
    # A filter of the service that finds parts of names is of no harm.
    assert [runtime["agentRuntimeName"] for runtime in await api.runtimes("x-00")] == []


@pytest.mark.parametrize(
    ("changed", "fix"),
    [
        ({"access_key_id": "LTAI-none"}, "SANDMESH_AGENT_RUN_ACCESS_KEY_ID"),
        ({"access_key_secret": SecretStr("x")}, "SANDMESH_AGENT_RUN_ACCESS_KEY_SECRET"),
        ({"access_key_id": ""}, "SANDMESH_AGENT_RUN_ACCESS_KEY_ID"),
    ],
)
async def test_wrong_keys_are_named(
    runs: StandIn, run_settings: AgentRunSettings, changed: dict[str, Any], fix: str
) -> None:
    with pytest.raises(RuntimeUnavailable) as raised:
        async with open_plugin("agentrun", run_settings.model_copy(update=changed)):
            pass
    assert fix in raised.value.facts["fix"]


async def test_missing_rights_are_named_with_the_vendors_request_id(
    runs: StandIn, run_settings: AgentRunSettings
) -> None:
    async with open_plugin("agentrun", run_settings) as driver:
        runs.denied.add("CreateAgentRuntime")
        with pytest.raises(RuntimeUnavailable, match=r"AccessDenied.*\(request [0-9a-f]{16}\)"):
            await create(driver, run_settings)
    assert runs.living == []
