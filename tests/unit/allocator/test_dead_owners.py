"""What a dead allocator was deleting, and saving first: another goes on with it within its grace."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.records.record_store import Claim, RecordStore
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.store import Store
from tests.unit.allocator.states_world import NODES, want
from tests.unit.store.waiting import commands

HOUR_US = 3600 * 10**6
SETTINGS = AllocatorSettings(owner_grace_seconds=10)


def allocator(store: Store) -> tuple[RecordStore, MaintenanceStore]:
    """Return the records as one more allocator has them."""
    records = RecordStore(store, 10_000_000)
    return records, MaintenanceStore(store, records, SETTINGS)


async def test_a_workspace_whose_allocator_died_is_saved_by_another_within_its_grace(store: Store) -> None:
    (records, dead), (_, other) = allocator(store), allocator(store)
    await dead.open()
    for one in (dead, other):
        await one.sweep(NODES)
    spec = pb.SandboxSpec(template="base")
    claim = Claim("s", "box", "t", "sb-1", HOUR_US, spec, want("base", 0, ""), workspace="ada/s/box")
    record = (await records.claim(claim, "")).record
    assert record is not None
    await records.started("sb-1")
    await records.ready("sb-1", driver_pb2.RuntimeSandbox())
    await records.release("sb-1", record.token, "released")
    taken = await dead.take_stopping(HOUR_US, HOUR_US)
    assert taken is not None
    assert taken.workspace
    kept = await records.read("sb-1")
    assert kept is not None
    assert kept.text("reason") == "released; its workspace is being saved"
    assert [one.kind for one in await other.survey()] == ["saving"]
    # Its owner lives: nobody else saves it.
    await other.sweep(NODES)
    assert await other.take_stopping(HOUR_US, HOUR_US) is None
    # The dead one was last seen longer ago than its grace.
    key = store.key("allocators")
    await commands(store).zincrby(key, -11e6, records.owner)
    await other.sweep(NODES)
    assert await other.take_stopping(HOUR_US, HOUR_US) == taken
    assert await other.gone("sb-1")
    assert not await commands(store).exists(store.key("deleting"))


async def test_a_session_whose_workspace_could_not_be_saved_on_a_node_that_is_gone_has_an_event(store: Store) -> None:
    records, maintenance = allocator(store)
    await maintenance.open()
    await maintenance.sweep(NODES)
    spec = pb.SandboxSpec(template="base")
    for sandbox_id, workspace in (("sb-1", "ada/s/box"), ("sb-2", "")):
        claim = Claim(sandbox_id, "box", "t", sandbox_id, HOUR_US, spec, want("base", 0, ""), workspace=workspace)
        record = (await records.claim(claim, "")).record
        assert record is not None
        await records.started(sandbox_id)
        await records.ready(sandbox_id, driver_pb2.RuntimeSandbox())
        await records.release(sandbox_id, record.token, "released")
        assert await maintenance.take_stopping(HOUR_US, HOUR_US) is not None
        assert not await maintenance.gone(sandbox_id, only_if_silent=True)
    for node in await commands(store).zrange(store.key("nodes_seen"), 0, -1):
        await commands(store).zincrby(store.key("nodes_seen"), -3.6e9, node)
    for sandbox_id, reason in (
        ("sb-1", "its node is gone: its session goes on with what was saved before"),
        ("sb-2", "its node is gone"),
    ):
        assert await maintenance.gone(sandbox_id, only_if_silent=True)
        ((_, fields),) = await commands(store).xrevrange(store.key("events", sandbox_id), count=1)
        assert (fields[b"kind"], fields[b"reason"]) == (b"deleted", reason.encode())
