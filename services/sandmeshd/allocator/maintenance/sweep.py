"""A sweep on request: every difference between records and runtimes, and its repair."""

from __future__ import annotations

import structlog

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import Recovering, SandmeshError
from sandmeshd.allocator.maintenance.maintenance_store import Due, MaintenanceStore
from sandmeshd.allocator.maintenance.reconciler import Reconciler, Repair
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.records import IDLE_REASON, timestamp

log = structlog.get_logger()

# What the periodic sweep does about each kind that is found in the records.
_DUE = {
    "expired": ("release", "its lease ran out"),
    "idle": ("release", IDLE_REASON),
    "abandoned": ("fail", "the allocator that started it does not answer"),
    "silent": ("wait", "its node does not answer: after a grace time it is lost"),
    "stopping": ("wait", "it is being deleted"),
    "saving": ("wait", "its workspace is being saved before it is deleted"),
}


class MeshSweep:
    """Find differences, and repair them unless it is a dry run."""

    def __init__(self, maintenance: MaintenanceStore, nodes: Nodes, reconciler: Reconciler, mesh_id: str) -> None:
        self._maintenance = maintenance
        self._nodes = nodes
        self._reconciler = reconciler
        self._mesh_id = mesh_id

    async def run(self, dry_run: bool) -> pb.SweepMeshResponse:
        """Compare everything now, without a grace time."""
        try:
            due = await self._maintenance.survey()
            findings = [_due(one) for one in due]
            for node in self._nodes.all:
                findings += await self._compare(node, dry_run)
            if not dry_run:
                while (await self._maintenance.sweep(self._nodes.healthy_ids())).is_full:
                    pass
        except Recovering:
            return pb.SweepMeshResponse(recovering=True)
        return pb.SweepMeshResponse(findings=findings)

    async def _compare(self, node: Node, dry_run: bool) -> list[pb.SweepFinding]:
        try:
            await node.refresh()
            expected = await self._reconciler.expected(node)
            request = driver_pb2.ListSandboxesRequest(mesh_id=self._mesh_id)
            listed = (await node.client.list_sandboxes(request)).sandboxes
            seen = {sandbox.sandbox_id: sandbox for sandbox in listed}
            found = await self._reconciler.find(node, expected, seen)
            if not dry_run:
                await self._reconciler.repair(node, found, seen, 0.0)
        except Recovering:
            raise
        except SandmeshError as error:
            log.warning("a node could not be swept", node=node.name, error=error.message)
            return [pb.SweepFinding(kind="unreachable", node_id=node.name, action="wait", reason=error.message)]
        return [_finding(one) for one in found]


def _due(due: Due) -> pb.SweepFinding:
    action, reason = _DUE[due.kind]
    detail = (
        f"{reason}; the last attempt failed: {due.detail}"
        if due.kind in ("stopping", "saving") and due.detail
        else reason
    )
    return pb.SweepFinding(
        kind=due.kind, sandbox_id=due.sandbox_id, node_id=due.node_id, action=action, reason=detail,
        since_time=timestamp(due.since_us),
    )  # fmt: skip


def _finding(one: Repair) -> pb.SweepFinding:
    return pb.SweepFinding(
        kind=one.kind, sandbox_id=one.sandbox_id, node_id=one.node_id, action=one.action, reason=one.reason
    )
