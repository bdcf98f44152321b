"""Reconciliation of records and runtimes, both ways: what ended becomes LOST, what has no record is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.maintenance.recovery import Recovery, is_lost_record
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.store import Store

log = structlog.get_logger()

_LOG_BYTES, _LOG_LINES = 4096, 5
_RUNS = {pb.RUNTIME_STATE_RUNNING: "READY", pb.RUNTIME_STATE_PAUSED: "PAUSED"}


@dataclass(frozen=True)
class Repair:
    """A difference between a record and a runtime, and the action that repairs it."""

    kind: str
    sandbox_id: str
    node_id: str
    action: str
    reason: str


class Reconciler:
    """Compare a node's sandboxes with the records, and repair the differences."""

    def __init__(self, store: Store, records: RecordStore, maintenance: MaintenanceStore, recovery: Recovery) -> None:
        self._store = store
        self._records = records
        self._maintenance = maintenance
        self._recovery = recovery
        self._orphans: dict[tuple[str, str], float] = {}

    async def expected(self, node: Node) -> dict[str, str]:
        """Return what should be on a node; call it before the node lists what it has."""
        return await self._maintenance.on_node(node.node_id)

    async def find(
        self, node: Node, expected: Mapping[str, str], seen: Mapping[str, pb.RuntimeSandbox]
    ) -> list[Repair]:
        """Return the differences.

        Raises:
            Recovering: The records are being rebuilt: the differences are unknown.
        """
        found: list[Repair] = []
        for sandbox_id, state in expected.items():
            if state not in ("READY", "PAUSED"):
                continue
            differs = _difference(state, seen.get(sandbox_id))
            if differs is not None:
                found.append(Repair(differs[0], sandbox_id, node.node_id, *differs[1:]))
        missing = await self._maintenance.missing(node.node_id, list(seen))
        return found + [self._unrecorded(node, seen[sandbox_id]) for sandbox_id in missing]

    def _unrecorded(self, node: Node, sandbox: pb.RuntimeSandbox) -> Repair:
        if is_lost_record(sandbox, self._store.generation):
            reason = "its record was lost with an earlier store"
            return Repair("lost_record", sandbox.sandbox_id, node.node_id, "adopt", reason)
        return Repair("orphan", sandbox.sandbox_id, node.node_id, "delete", "no record has it")

    async def repair(
        self, node: Node, found: Sequence[Repair], seen: Mapping[str, pb.RuntimeSandbox], grace_seconds: float
    ) -> None:
        """Apply the findings; orphans are deleted once they were seen as such for the grace time."""
        for finding in found:
            if finding.action == "lose":
                await self.lose(node, finding.sandbox_id, finding.reason)
            elif finding.action == "settle":
                await self.settle(seen[finding.sandbox_id])
        orphans = {one.sandbox_id for one in found if one.action == "delete"}
        for finding in found:
            if finding.action == "adopt" and node.info is not None:
                kind = await self._recovery.try_to_adopt(node.info, seen[finding.sandbox_id])
                orphans |= {finding.sandbox_id} if kind in ("deleted", "taken") else set()
        await self._delete_orphans(node, orphans, grace_seconds)

    async def _delete_orphans(self, node: Node, orphans: set[str], grace_seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        kept = {key: since for key, since in self._orphans.items() if key[0] != node.name or key[1] in orphans}
        self._orphans = kept
        for sandbox_id in sorted(orphans):
            since = kept.setdefault((node.name, sandbox_id), now)
            if now - since >= grace_seconds:
                log.warning("a sandbox without a record is deleted", sandbox_id=sandbox_id, node=node.name)
                await node.client.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=sandbox_id))

    def next_grace_end(self, node: Node, grace_seconds: float) -> float | None:
        """Return when the grace time of a node's next orphan ends, by the loop's clock."""
        now = asyncio.get_running_loop().time()
        ends = [since + grace_seconds for key, since in self._orphans.items() if key[0] == node.name]
        return min((end for end in ends if end > now), default=None)

    async def lose(self, node: Node, sandbox_id: str, reason: str) -> None:
        """Record that a sandbox ended, with the end of its log."""
        tail = await _log_tail(node, sandbox_id)
        detail = f"{reason}; its last words: {tail}" if tail else reason
        if await self._maintenance.lost(sandbox_id, detail):
            log.warning("a sandbox was lost", sandbox_id=sandbox_id, reason=detail)

    async def settle(self, sandbox: pb.RuntimeSandbox) -> None:
        """Record whether a sandbox is running or paused, where no change of that is in progress."""
        record = await self._records.read(sandbox.sandbox_id)
        state = _RUNS.get(sandbox.state)
        if record is not None and state and record.state in ("READY", "PAUSED") and record.state != state:
            await self._records.settle(sandbox.sandbox_id, state, "its runtime has it so", "driver")


def _difference(state: str, there: pb.RuntimeSandbox | None) -> tuple[str, str, str] | None:
    """Return kind, action and reason where a runtime and the record of a sandbox in use differ."""
    if there is None:
        return "ghost", "lose", "its runtime no longer has it"
    if there.state == pb.RUNTIME_STATE_ENDED:
        return "ghost", "lose", there.end_detail or "its first process ended"
    if _RUNS.get(there.state, state) != state:
        return "unsettled", "settle", f"it is {state} and its runtime has it {_RUNS[there.state]}"
    return None


async def _log_tail(node: Node, sandbox_id: str) -> str:
    try:
        answer = await node.client.get_logs(pb.GetLogsRequest(sandbox_id=sandbox_id, tail_bytes=_LOG_BYTES))
    except SandmeshError:
        return ""
    lines = answer.data.decode(errors="replace").split("\n")
    return " | ".join([line.strip() for line in lines if line.strip()][-_LOG_LINES:])
