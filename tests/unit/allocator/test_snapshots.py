"""Snapshots are taken under the lease, found by asking the nodes, and begun with where they are."""

from __future__ import annotations

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import CapabilityMissing, InvalidArgument, LeaseLost, SnapshotNotFound, WrongState
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.process_driver import ProcessDriver, Runtime


async def test_a_claim_goes_to_the_node_that_has_its_snapshot(mesh: Mesh) -> None:
    second = Runtime(node_id="node-2")
    drivers = {"one": ProcessDriver(mesh.runtime), "two": ProcessDriver(second)}
    try:
        async with mesh.over(drivers) as allocator:
            claims = [(await allocator.claim(f"s-{number}")).sandbox for number in range(2)]
            assert {claim.node_id for claim in claims} == {"node-1", "node-2"}
            for sandbox in claims:
                taken = await allocator.snapshot(sandbox)
                assert (taken.node_id, taken.template, taken.driver) == (sandbox.node_id, "base", "process")
                for again in range(2):
                    spec = pb.SandboxSpec(template="base", snapshot_id=taken.snapshot_id)
                    begun = await allocator.claim(f"{taken.snapshot_id}-{again}", spec=spec)
                    assert begun.sandbox.node_id == taken.node_id
                    assert begun.sandbox.spec.snapshot_of == sandbox.sandbox_id
                    forged = pb.SandboxSpec(template="base", snapshot_of=sandbox.sandbox_id)
                    found = await allocator.claim(f"{taken.snapshot_id}-none-{again}", spec=forged)
                    assert found.sandbox.spec.snapshot_of == ""
            listed = await allocator.snapshots()
            assert {snapshot.node_id for snapshot in listed.snapshots} == {"node-1", "node-2"}
            await allocator.delete_snapshot(listed.snapshots[0].snapshot_id)
            assert (await allocator.snapshots()).snapshots == listed.snapshots[1:]
    finally:
        await second.close()


async def test_a_snapshot_is_never_given_from_a_pool(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        taken = await allocator.snapshot((await allocator.claim("s-1")).sandbox)
        await allocator.until_pooled("base", 1)
        begun = await allocator.claim("s-2", spec=pb.SandboxSpec(template="base", snapshot_id=taken.snapshot_id))
        assert not begun.pooled


async def test_what_cannot_be_a_snapshot_is_refused_by_name(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("s-1")).sandbox
        token = sandbox.lease.fencing_token
        with pytest.raises(LeaseLost):
            await allocator.snapshot(sandbox, token - 1)
        with pytest.raises(InvalidArgument, match="snap_"):
            await allocator.snapshot(sandbox, name="../up")
        taken = await allocator.snapshot(sandbox)
        with pytest.raises(InvalidArgument, match="fits no other"):
            await allocator.claim("s-2", spec=pb.SandboxSpec(template="other", snapshot_id=taken.snapshot_id))
        with pytest.raises(SnapshotNotFound):
            await allocator.claim("s-2", spec=pb.SandboxSpec(template="base", snapshot_id="snap_none"))
        with pytest.raises(SnapshotNotFound):
            await allocator.delete_snapshot("snap_none")
        await allocator.pause(sandbox, token)
        with pytest.raises(WrongState):
            await allocator.snapshot(sandbox)
    mesh.runtime.takes_snapshots = False
    async with mesh.allocator("b") as allocator:
        with pytest.raises(CapabilityMissing):
            await allocator.snapshot((await allocator.claim("s-3")).sandbox)
        assert not (await allocator.snapshots()).snapshots
