"""Pausing and resuming sandboxes, with the intent recorded first."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import LeaseLost, RuntimeUnavailable, SandmeshError, WrongState
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.ownership import not_found
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.records.records import Record


class PauseControl:
    """Take sandboxes from READY to PAUSED and back."""

    def __init__(self, records: RecordStore, nodes: Nodes) -> None:
        self._records = records
        self._nodes = nodes

    async def change(self, sandbox_id: str, token: int, target: str) -> Record:
        """Bring a sandbox to PAUSED or READY; one that is there already stays.

        Raises:
            SandboxNotFound, LeaseLost, WrongState: As named.
            CapabilityMissing: Its driver cannot; it stays as it was.
        """
        reply = await self._records.intend(sandbox_id, token, target)
        record = reply.record
        if record is None or reply.kind == "lost":
            raise _refusal(sandbox_id, reply.kind)
        if reply.kind == "busy":
            message = f"sandbox {sandbox_id} is {record.state}, or is being paused or resumed: try again"
            raise WrongState(message, {"state": record.state})
        return record if reply.kind == "done" else await self._act(record, target)

    async def _act(self, record: Record, target: str) -> Record:
        node = self._nodes.by_id(record.node_id)
        try:
            if node is None:
                raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
            await _call_driver(node, record.sandbox_id, target)
        except SandmeshError:
            await self._records.settle(record.sandbox_id, record.state)
            raise
        settled = await self._records.settle(record.sandbox_id, target, actor="holder")
        if settled is None:
            message = f"sandbox {record.sandbox_id} was released or lost meanwhile"
            raise WrongState(message, {"state": "STOPPING"})
        return settled


async def _call_driver(node: Node, sandbox_id: str, target: str) -> None:
    if target == "PAUSED":
        await node.client.pause_sandbox(pb.PauseSandboxRequest(sandbox_id=sandbox_id))
    else:
        await node.client.resume_sandbox(pb.ResumeSandboxRequest(sandbox_id=sandbox_id))


def _refusal(sandbox_id: str, kind: str) -> SandmeshError:
    if kind == "missing":
        return not_found(sandbox_id)
    message = f"the token is not the one in force for sandbox {sandbox_id}: its lease ran out or passed on"
    return LeaseLost(message, {"sandbox_id": sandbox_id})
