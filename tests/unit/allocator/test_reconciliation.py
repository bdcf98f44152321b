"""Records and runtimes held together: deaths, orphans, restarts and lost data."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import LeaseLost, SandboxLost, StoreUnavailable
from sandmeshd.allocator.records.record_store import Claim, NodeWant, RecordStore, Want
from sandmeshd.allocator.records.spec import normalized, spec_key
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.process_driver import ProcessDriver
from tests.unit.store.waiting import commands, until


async def test_a_killed_sandbox_is_lost_with_the_reason_and_its_slot_gets_a_new_one(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one", ports=2)).sandbox
        await mesh.runtime.kill(sandbox.sandbox_id)
        lost = await allocator.until_state(sandbox.sandbox_id, pb.SANDBOX_STATE_LOST)
        assert lost.state_reason == "signal 9; its last words: first line | last words \ufffd"
        with pytest.raises(SandboxLost) as caught:
            await allocator.resolve(sandbox.sandbox_id)
        assert caught.value.facts["detail"] == lost.state_reason
        assert (await allocator.capacity()).used == 0
        assert not await mesh.store.hash("ports", "node-1")
        [kept] = (await allocator.list(session_key="one")).sandboxes
        assert kept.sandbox_id == sandbox.sandbox_id
        fresh = (await allocator.claim("one")).sandbox
        assert fresh.sandbox_id != sandbox.sandbox_id
        assert fresh.lease.fencing_token > sandbox.lease.fencing_token
        await until(lambda: sandbox.sandbox_id in mesh.runtime.deleted)
        # Its old holder's release says nothing about the new one.
        await allocator.release(sandbox)
        with pytest.raises(LeaseLost):
            await allocator.release(fresh, sandbox.lease.fencing_token)


async def test_a_restarted_allocator_keeps_its_sandboxes(mesh: Mesh) -> None:
    async with mesh.allocator("a") as allocator:
        before = (await allocator.claim("one", ports=1)).sandbox
    async with mesh.allocator("b") as allocator:
        after = await allocator.claim("one")
        assert not after.claimed
        assert after.sandbox.sandbox_id == before.sandbox_id
        assert list(after.sandbox.ports) == list(before.ports)
        assert after.sandbox.lease.fencing_token == before.lease.fencing_token


async def test_what_died_while_no_allocator_ran_is_lost_at_the_next_start(mesh: Mesh) -> None:
    async with mesh.allocator("a") as allocator:
        ended = (await allocator.claim("ended")).sandbox
        vanished = (await allocator.claim("vanished")).sandbox
    await mesh.runtime.kill(ended.sandbox_id)
    await mesh.runtime.remove(vanished.sandbox_id)
    async with mesh.allocator("b") as allocator:
        found = await allocator.until_state(ended.sandbox_id, pb.SANDBOX_STATE_LOST)
        assert found.state_reason.startswith("signal 9")
        found = await allocator.until_state(vanished.sandbox_id, pb.SANDBOX_STATE_LOST)
        assert found.state_reason == "its runtime no longer has it"


async def test_a_sandbox_without_a_record_is_deleted_after_the_grace(mesh: Mesh) -> None:
    driver = ProcessDriver(mesh.runtime)
    request = driver_pb2.CreateSandboxRequest(sandbox_id="sb_orphan", mesh_id="m", spec=pb.SandboxSpec(template="base"))
    await driver.create_sandbox(request)
    async with mesh.allocator(orphan_grace_seconds=0.1, reconcile_seconds=3600) as allocator:
        kept = (await allocator.claim("one")).sandbox
        await until(lambda: "sb_orphan" not in mesh.runtime.processes)
        assert list(mesh.runtime.processes) == [kept.sandbox_id]


async def test_sandboxes_whose_records_went_with_the_store_are_their_holders_again(mesh: Mesh) -> None:
    async with mesh.allocator("a", orphan_grace_seconds=0, reconcile_seconds=0.1) as allocator:
        before = [(await allocator.claim(f"s{number}", ports=2)).sandbox for number in range(3)]
        await commands(mesh.store).flushdb()
        again = [await allocator.claim_when_recovered(f"s{number}") for number in range(3)]
        for old, new in zip(before, again, strict=True):
            assert new.sandbox_id == old.sandbox_id
            assert new.lease.fencing_token == old.lease.fencing_token
            assert list(new.ports) == list(old.ports)
            assert new.spec == old.spec
        assert mesh.runtime.deleted == []
        assert (await allocator.claim("new")).sandbox.lease.fencing_token > max(
            one.lease.fencing_token for one in again
        )
        await asyncio.gather(*(allocator.release(sandbox) for sandbox in again))
        await allocator.until_used(1)


async def test_unused_sandboxes_of_a_lost_store_are_orphans_and_go(mesh: Mesh) -> None:
    driver = ProcessDriver(mesh.runtime)
    for sandbox_id, labels in (
        ("sb_used", {"generation": "another", "session": "one", "slot": "base", "token": "7", "ttl_us": "60000000"}),
        ("sb_unused", {"generation": "another"}),
        ("sb_orphan", {"generation": mesh.store.generation, "session": "two", "slot": "base"}),
    ):
        request = driver_pb2.CreateSandboxRequest(
            sandbox_id=sandbox_id, mesh_id="m", spec=pb.SandboxSpec(template="base"), record_labels=labels
        )
        await driver.create_sandbox(request)
    async with mesh.allocator(orphan_grace_seconds=0, reconcile_seconds=0.1) as allocator:
        await until(lambda: list(mesh.runtime.processes) == ["sb_used"])
        kept = await allocator.get("sb_used")
        assert (kept.lease.fencing_token, kept.session_key) == (7, "one")


async def test_what_a_dead_allocator_was_starting_fails_and_its_slot_is_free(mesh: Mesh) -> None:
    async with mesh.allocator("a", owner_grace_seconds=0.3) as allocator:
        sandbox = (await allocator.claim("one")).sandbox
        # As an allocator that was killed in mid-create leaves its record.
        key = mesh.store.key("sandbox", sandbox.sandbox_id)
        await commands(mesh.store).hset(key, mapping={"state": "STARTING", "owner": "dead"})
        await commands(mesh.store).sadd(mesh.store.key("starting"), sandbox.sandbox_id)
        failed = await allocator.until_state(sandbox.sandbox_id, pb.SANDBOX_STATE_FAILED)
        assert "allocator" in failed.state_reason
        assert (await allocator.claim("one")).sandbox.sandbox_id != sandbox.sandbox_id


async def test_a_claim_that_is_sent_again_after_its_sandbox_was_given_back_makes_no_second_one_of_its_id(
    mesh: Mesh,
) -> None:
    async with mesh.allocator(sweep_seconds=3600) as allocator:
        spec = normalized(pb.SandboxSpec(template="base"), "process")
        wanted = Want("base", spec_key(spec, "1"), 0, 10, 0, [NodeWant("node-1", "process", 10, 0, 0)])
        claim, records = Claim("one", "base", "t", "sb_once", 10**9, spec, wanted), RecordStore(mesh.store, 10**9)
        begun = await records.claim(claim, "")
        assert begun.record is not None
        await records.release("sb_once", begun.record.token, "released")
        # As a request that the connection to the store had repeated, before and after the sandbox is gone.
        assert (await records.claim(claim, "")).kind == "left"
        await allocator.until_used(0)
        assert (await records.claim(claim, "")).kind == "left"


async def test_a_request_sent_again_goes_on_with_what_a_dead_allocator_had_begun(mesh: Mesh) -> None:
    async with mesh.allocator("b", owner_grace_seconds=1, sweep_seconds=3600) as allocator:
        # An allocator that died right after it had recorded what it was about to make.
        node = NodeWant("node-1", "process", 10, 20000, 20199)
        spec = normalized(pb.SandboxSpec(template="base", port_count=2), "process")
        wanted = Want("base", spec_key(spec, "1"), 2, 10, 0, [node])
        begun = await RecordStore(mesh.store, 1).claim(Claim("one", "base", "t", "sb_begun", 10**9, spec, wanted), "")
        assert begun.kind == "create"
        assert begun.record is not None
        again = await allocator.claim("one", ports=2)
        assert again.sandbox.sandbox_id == "sb_begun"
        assert again.sandbox.lease.fencing_token == begun.record.token
        assert list(again.sandbox.ports) == begun.record.ports
        assert [event.kind for event in await allocator.events("sb_begun")] == ["created", "retried", "leased"]


async def test_a_deletion_that_fails_is_tried_again_until_it_is_done(mesh: Mesh) -> None:
    class Stubborn(ProcessDriver):
        refusals = 2

        async def delete_sandbox(self, request: driver_pb2.DeleteSandboxRequest) -> driver_pb2.DeleteSandboxResponse:
            if self.refusals:
                self.refusals -= 1
                raise SandboxLost("the runtime is busy")
            return await super().delete_sandbox(request)

    async with mesh.over({"process": Stubborn(mesh.runtime)}) as allocator:
        await allocator.release((await allocator.claim("one")).sandbox)
        await allocator.until_used(0)
        assert mesh.runtime.processes == {}


async def test_records_are_there_by_value_after_the_store_was_killed(mesh: Mesh, tmp_path: Path) -> None:
    async with mesh.allocator() as allocator:
        before = (await allocator.claim("one", ports=2)).sandbox
        _kill_server(tmp_path)

        async def same() -> bool:
            try:
                return await allocator.get(before.sandbox_id) == before
            except StoreUnavailable:
                return False

        await until(same)
        assert (await allocator.claim("two")).sandbox.lease.fencing_token > before.lease.fencing_token


def _kill_server(folder: Path) -> None:
    """Kill the embedded server that works in a folder."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if not path.read_text().startswith("valkey-server"):
                continue
            where = (path.parent / "cwd").readlink()
        except OSError:
            continue
        if where == folder / "data":
            os.kill(int(path.parent.name), signal.SIGKILL)


async def test_every_key_belongs_to_the_mesh_and_little_is_left_when_all_is_released(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandboxes = [(await allocator.claim(f"s{number}", ports=1)).sandbox for number in range(3)]
        await asyncio.gather(*(allocator.release(sandbox) for sandbox in sandboxes))
        await allocator.until_used(0)
        kinds = {key.removeprefix("sandmesh:{m}:").split(":")[0] for key in await mesh.store.keys()}
        # The clocks that must not go back, what expires by itself, what was used, and who lives.
        assert kinds <= {
            "token",
            "generation",
            "port_cursor",
            "allocators",
            "nodes_seen",
            "tomb",
            "left",
            "events",
            "open",
            "pulse",
            "swept",
            "usage",
        }


async def test_a_released_record_cannot_become_ready(mesh: Mesh) -> None:
    records = RecordStore(mesh.store, 1)
    async with mesh.allocator():
        done, record = await records.ready("sb_nothing", driver_pb2.RuntimeSandbox())
    assert not done
    assert record.state == ""
