"""Sweeps at somebody's word: what they would do, and that they do it."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.process_driver import ProcessDriver
from tests.unit.store.waiting import commands, until


async def test_a_dry_run_says_what_differs_and_changes_nothing_and_a_sweep_puts_it_right(mesh: Mesh) -> None:
    driver = ProcessDriver(mesh.runtime)
    async with mesh.over({"process": driver}, sweep_seconds=3600) as allocator:
        kept, ghost, old = [(await allocator.claim(f"s{number}")).sandbox for number in range(3)]
        await driver.create_sandbox(
            driver_pb2.CreateSandboxRequest(sandbox_id="sb_orphan", mesh_id="m", spec=pb.SandboxSpec(template="base"))
        )
        mesh.runtime.processes["sb_gone"] = mesh.runtime.processes.pop(ghost.sandbox_id)
        mesh.runtime.sandboxes.pop(ghost.sandbox_id)
        await commands(mesh.store).zadd(mesh.store.key("leases"), {old.sandbox_id: 1})
        found = {one.sandbox_id: (one.kind, one.action) for one in await allocator.sweep(dry_run=True)}
        assert found == {
            "sb_orphan": ("orphan", "delete"),
            ghost.sandbox_id: ("ghost", "lose"),
            old.sandbox_id: ("expired", "release"),
        }
        assert (await allocator.get(ghost.sandbox_id)).state == pb.SANDBOX_STATE_READY
        assert "sb_orphan" in mesh.runtime.processes
        assert len(await allocator.sweep(dry_run=False)) == 3
        assert (await allocator.get(ghost.sandbox_id)).state == pb.SANDBOX_STATE_LOST
        await allocator.until_used(1)
        await until(lambda: set(mesh.runtime.sandboxes) == {kept.sandbox_id})
        assert not await allocator.sweep(dry_run=True)


async def test_a_mesh_that_rebuilds_its_records_says_so_instead(mesh: Mesh) -> None:
    async with mesh.allocator(sweep_seconds=3600, reconcile_seconds=3600) as allocator:
        await allocator.claim("one")
        await commands(mesh.store).flushdb()
        answer = await allocator.stub.SweepMesh(pb.SweepMeshRequest(dry_run=True))
        assert answer.recovering
        assert not answer.findings
