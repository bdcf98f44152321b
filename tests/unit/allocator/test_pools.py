"""Pools: sandboxes kept ready, claimed by exactly what matches, and refilled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.allocator.records.spec import normalized, spec_key
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.process_driver import start_failure
from tests.unit.store.waiting import commands, until


async def test_a_claim_takes_from_the_pool_with_a_token_installed_and_the_pool_is_refilled(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 2}) as allocator:
        await allocator.until_pooled("base", 2)
        assert {request.fencing_token for request in mesh.runtime.created} == {0}
        spec = pb.SandboxSpec(template="base", labels={"mine": "yes"})
        answer = await allocator.claim("one", spec=spec)
        assert answer.pooled
        assert answer.claimed
        sandbox = answer.sandbox
        assert sandbox.spec.labels == {"mine": "yes"}
        assert sandbox.enforced == {"memory": "no"}
        assert mesh.runtime.tokens[sandbox.sandbox_id] == sandbox.lease.fencing_token > 0
        await allocator.until_pooled("base", 2)
        assert (await allocator.capacity()).used == 3


async def test_only_an_equal_spec_is_served_from_a_pool(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        specs = [
            pb.SandboxSpec(template="base", environment={"A": "1"}),
            pb.SandboxSpec(template="base", limits=pb.Limits(pids=5)),
            pb.SandboxSpec(template="base", network=pb.NetworkGrant(mode=pb.NETWORK_MODE_NONE)),
            pb.SandboxSpec(template="base", port_count=1),
            pb.SandboxSpec(template="other"),
        ]
        for number, spec in enumerate(specs):
            assert not (await allocator.claim(f"s{number}", spec=spec)).pooled
        same = pb.SandboxSpec(template="base", limits=pb.Limits(), driver="process", network=pb.NetworkGrant())
        assert (await allocator.claim("same", spec=same)).pooled


async def test_two_allocators_fill_one_pool_to_its_size(mesh: Mesh) -> None:
    async with mesh.allocator("a", pools={"base": 3}) as a, mesh.allocator("b", pools={"base": 3}):
        await a.until_pooled("base", 3)
        assert (await a.capacity()).used == 3
        assert len(mesh.runtime.created) == 3


async def test_a_pool_is_filled_in_the_background_and_in_parallel_within_its_bound(mesh: Mesh) -> None:
    mesh.runtime.gate.clear()
    async with mesh.allocator(pools={"base": 5}, pool_concurrency=3) as allocator:
        await until(lambda: len(mesh.runtime.started) == 3)
        # Others are served meanwhile, and a fourth waits for one of the three.
        assert (await allocator.capacity()).used == 3
        assert len(mesh.runtime.started) == 3
        mesh.runtime.gate.set()
        await allocator.until_pooled("base", 5)
        assert len(mesh.runtime.started) == 5


async def test_a_pooled_claim_takes_two_round_trips_to_the_store(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 1}, sweep_seconds=3600) as allocator:
        # Each script's first use teaches it to the server.
        await mesh.store.run("installed", {"id": "nobody", "token": "1"})
        taught = mesh.store.round_trips["installed"]
        first = await allocator.claim("first")
        await allocator.until_pooled("base", 1)
        second = await allocator.claim("second")
        await allocator.until_pooled("base", 1)
        # That a pooled sandbox has its token is noted behind the answer to its claim.
        noted = taught + first.pooled + second.pooled
        await until(lambda: mesh.store.round_trips["installed"] >= noted)
        before = mesh.store.round_trips.copy()
        assert (await allocator.claim("one")).pooled
        await until(lambda: mesh.store.round_trips["installed"] > before["installed"])
        spent = mesh.store.round_trips - before
        # All others are the refill's, the deletion worker's and those that look at the store, in the background.
        background = {"fill", "started", "ready", "take_stopping", "on_node", "missing", "drain", "probe", "info"}
        assert {name: count for name, count in spent.items() if name not in background} == {"claim": 1, "installed": 1}


async def test_a_cold_claim_takes_three_round_trips_to_the_store(mesh: Mesh) -> None:
    async with mesh.allocator(sweep_seconds=3600) as allocator:
        await allocator.claim("first")
        before = mesh.store.round_trips.copy()
        assert (await allocator.claim("one")).claimed
        spent = mesh.store.round_trips - before
        background = {"take_stopping", "on_node", "missing", "drain", "probe", "info"}
        found = {name: count for name, count in spent.items() if name not in background}
        assert found == {"claim": 1, "started": 1, "ready": 1}


async def test_a_pooled_sandbox_that_died_is_dropped_and_another_one_given(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 2}) as allocator:
        await allocator.until_pooled("base", 2)
        # The watch hears of it only after the claim.
        mesh.runtime.changes.clear()
        oldest = await _oldest(mesh)
        await mesh.runtime.kill(oldest)
        answer = await allocator.claim("one")
        assert answer.sandbox.sandbox_id != oldest
        assert mesh.runtime.processes[answer.sandbox.sandbox_id].returncode is None


async def _oldest(mesh: Mesh) -> str:
    [pool] = [key for key in await mesh.store.keys() if ":pool:" in key]
    [first] = await commands(mesh.store).zrange(pool, 0, 0)
    return str(first.decode())


async def test_an_unused_sandbox_that_dies_is_replaced(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        [dead] = mesh.runtime.processes
        await mesh.runtime.kill(dead)
        await until(lambda: dead not in mesh.runtime.processes and len(mesh.runtime.processes) == 1)
        await allocator.until_pooled("base", 1)
        assert (await allocator.capacity()).used == 1


async def test_a_pool_that_could_not_be_filled_is_tried_again(mesh: Mesh) -> None:
    mesh.runtime.failures += [start_failure(), start_failure()]
    async with mesh.allocator(pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        assert mesh.runtime.failures == []
        await allocator.until_used(1)


async def test_a_pool_that_is_no_longer_wanted_is_given_up_at_the_next_start(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 2}) as allocator:
        await allocator.until_pooled("base", 2)
    async with mesh.allocator() as allocator:
        await allocator.until_used(0)
        assert mesh.runtime.processes == {}


async def _is_noted(mesh: Mesh, key: str) -> bool:
    noted: bytes | None = await commands(mesh.store).hget(key, "installed")
    return noted == b"1"


async def test_a_claim_after_a_crash_before_the_token_was_installed_installs_it(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        answer = await allocator.claim("one")
        sandbox_id = answer.sandbox.sandbox_id
        key = mesh.store.key("sandbox", sandbox_id)
        await until(lambda: _is_noted(mesh, key))
        # As a crash between the claim and the agent's answer leaves it.
        mesh.runtime.tokens[sandbox_id] = 0
        await commands(mesh.store).hset(mesh.store.key("sandbox", sandbox_id), "installed", "0")
        await allocator.claim("one")
        assert mesh.runtime.tokens[sandbox_id] == answer.sandbox.lease.fencing_token
        assert mesh.runtime.sandboxes[sandbox_id].state == driver_pb2.RUNTIME_STATE_RUNNING


async def test_a_template_that_changes_while_the_mesh_runs_gets_a_new_pool_and_the_old_one_goes(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 2}, health_seconds=0.02) as allocator:
        await allocator.until_pooled("base", 2)
        old = set(mesh.runtime.processes)
        mesh.runtime.generation = "2"
        await until(lambda: len(mesh.runtime.processes) == 2 and not old & set(mesh.runtime.processes))
        taken = await allocator.claim("one")
        assert taken.pooled
        assert taken.sandbox.sandbox_id not in old


async def test_what_a_pool_has_above_its_most_is_deleted(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 3}) as allocator:
        await allocator.until_pooled("base", 3)
    async with mesh.allocator("b", pools={"base": 1}, pool_maxima={"base": 2}) as allocator:
        await allocator.until_pooled("base", 2)
        await until(lambda: len(mesh.runtime.processes) == 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"template": "other"},
        {"environment": {"A": "2"}},
        {"environment": {"A": "1", "B": ""}},
        {"driver": "docker"},
        {"limits": pb.Limits(pids=5)},
        {"network": pb.NetworkGrant(mode=pb.NETWORK_MODE_NONE)},
        {"network": pb.NetworkGrant(mode=pb.NETWORK_MODE_HOSTS, hosts=["b.example", "a.example"])},
        {"port_count": 1},
    ],
)
def test_a_request_that_differs_in_anything_but_labels_is_never_served_from_a_pool(changes: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"template": "base", "environment": {"A": "1"}, "driver": "process"}

    def key(generation: str = "1", **more: Any) -> str:
        spec = pb.SandboxSpec(**{**fields, **more})
        return spec_key(normalized(spec, spec.driver), generation)

    assert key(**changes) != key()
    assert key("2") != key()
    assert key(labels={"team": "red"}) == key()


async def test_who_watches_pools_is_told_what_waits_and_what_is_added_and_nothing_that_somebody_has(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 2}) as allocator:
        await allocator.claim("taken")
        await allocator.until_pooled("base", 2)
        received: dict[str, pb.WatchPoolsResponse] = {}
        watch = allocator.stub.WatchPools(pb.WatchPoolsRequest())

        async def hear(count: int) -> None:
            # One that is added as the watch begins is sent twice.
            while len(received) < count:
                one = await anext(aiter(watch))
                received[one.sandbox_id] = one

        async with asyncio.timeout(30):
            await hear(2)
            for one in received.values():
                found = await allocator.resolve(one.sandbox_id)
                assert (found.endpoint, found.agent_token) == (one.endpoint, one.agent_token)
                assert not found.sandbox.session_key
            assert (await allocator.claim("one")).sandbox.sandbox_id in received
            await hear(3)
        watch.cancel()
