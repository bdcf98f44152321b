"""Many records: no script changes or reads all of them at once, and nothing is left out."""

from __future__ import annotations

import pytest
from benchmarks.fleet.nodes import Behaviour, SimulatedNode

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.allocator import AllocatorSettings
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.records.record_store import PAGE, RecordStore
from sandmeshd.store import Store
from sandmeshd.tenants.quotas import QuotaRecords
from sandmeshd.tenants.usage import count_usage
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.made_records import commands_run, make_pooled, make_ready
from tests.unit.allocator.test_usage import usage_of
from tests.unit.store.waiting import commands, until

MANY = 2 * PAGE + 50


@pytest.fixture
async def opened(store: Store) -> Store:
    """Return a store that serves."""
    await store.run("open", {})
    await store.refresh_generation()
    return store


def maintenance_of(store: Store) -> MaintenanceStore:
    return MaintenanceStore(store, RecordStore(store, 10_000_000), AllocatorSettings())


async def test_a_sweep_ends_a_page_of_the_leases_that_are_over_and_the_next_ones_the_rest(opened: Store) -> None:
    await make_ready(opened, "s", MANY, ttl_us=1)
    swept = [await maintenance_of(opened).sweep(["node-1"]) for _ in range(3)]
    assert [(one.expired, one.is_full) for one in swept] == [(PAGE, True), (PAGE, True), (50, False)]
    assert await commands(opened).zcard(opened.key("stopping")) == MANY


async def test_sandboxes_of_a_node_that_fell_silent_are_lost_a_page_at_a_time(opened: Store) -> None:
    await make_ready(opened, "s", MANY)
    await commands(opened).zadd(opened.key("nodes_seen"), {"node-1": 1})
    swept = [await maintenance_of(opened).sweep([]) for _ in range(3)]
    assert [(one.lost, one.is_full) for one in swept] == [(PAGE, True), (PAGE, True), (50, False)]
    assert await commands(opened).scard(opened.key("used")) == 0


async def test_an_allocator_sweeps_all_pages_without_a_pause_between_them(mesh: Mesh) -> None:
    await mesh.store.run("open", {})
    await make_ready(mesh.store, "s", MANY, ttl_us=1)
    # It sweeps when it opens, and then not for an hour.
    async with mesh.over({"node-1": SimulatedNode("node-1", Behaviour(delay=0))}, sweep_seconds=3600) as allocator:
        await allocator.until_used(0)
    assert mesh.store.round_trips["gone"] >= MANY


async def test_what_a_node_should_have_is_read_in_pages_and_is_all_there(opened: Store) -> None:
    maintenance = maintenance_of(opened)
    names = [f"sb_{number}" for number in range(2_500)]
    await commands(opened).sadd(opened.key("node", "node-1"), *names)
    assert set(await maintenance.on_node("node-1")) == set(names)
    assert opened.round_trips["on_node"] > 1
    assert await maintenance.missing("node-1", names) == names
    assert opened.round_trips["missing"] >= 3


async def test_a_mesh_that_ends_stops_its_sandboxes_and_pools_in_pages(opened: Store) -> None:
    records = RecordStore(opened, 10_000_000)
    await make_ready(opened, "s", MANY)
    assert await records.evacuate("the end") == MANY
    assert await commands(opened).zcard(opened.key("stopping")) == MANY
    assert opened.round_trips["evacuate"] >= 3
    assert await records.evacuate("the end") == 0


async def test_a_pool_that_is_no_longer_wanted_is_stopped_in_pages(opened: Store) -> None:
    records = RecordStore(opened, 10_000_000)
    await make_pooled(opened, PAGE + 20)
    assert await records.drain({}) == PAGE + 20
    assert opened.round_trips["drain"] >= 2
    assert await records.drain({}) == 0


async def test_usage_is_counted_in_pages_and_each_sandbox_once(opened: Store) -> None:
    await make_ready(opened, "s", 1_200)
    began = await commands_run(opened)
    await count_usage(opened)
    assert opened.round_trips["usage_meter"] > 3
    # Of each sandbox its record and its sums are read and written, and no more.
    assert await commands_run(opened) - began < 1_200 * 5 + 200
    found = await usage_of(opened)
    assert len(found.sandboxes) == 1_000
    metered = await commands(opened).hget(opened.key("sandbox", "sb_s0"), "metered_us")
    assert metered is not None
    [project] = found.projects
    total = sum(int(value) for value in [await _own_ms(opened, f"sb_s{number}") for number in range(1_200)])
    assert round(project.sandbox_seconds * 1000) == total


async def _own_ms(store: Store, sandbox_id: str) -> int:
    return int((await store.hash("usage", "sandbox", sandbox_id))["sandbox_ms"])


async def test_a_claim_at_a_quota_looks_at_none_of_what_is_being_deleted(mesh: Mesh) -> None:
    held = SimulatedNode("node-1", Behaviour())
    async with mesh.over({"node-1": held}, sweep_seconds=3600, delete_concurrency=1) as allocator:
        await QuotaRecords(mesh.store).set("caller", "ada", {"sandboxes": 3}, [])
        made = [(await allocator.claim(f"s{number}", user="ada")).sandbox for number in range(3)]
        for one in made:
            await allocator.release(one)
        # What is being deleted is waited for, as for room.
        again = (await allocator.claim("again", user="ada")).sandbox
        assert again.state == pb.SANDBOX_STATE_READY
        await allocator.release(again)
        await until(lambda: _no_endings(mesh.store))


async def _no_endings(store: Store) -> bool:
    return not [name for name in await store.keys() if ":ending:" in name]
