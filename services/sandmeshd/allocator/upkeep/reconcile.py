"""Holds records and runtimes together, both ways: what ended is LOST, what nobody recorded is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.allocator.nodes.nodes import Node
from sandmeshd.allocator.records.ledger import Ledger
from sandmeshd.allocator.upkeep.recovery import Recovery, is_lost_record
from sandmeshd.allocator.upkeep.upkeep import Upkeep
from sandmeshd.store import Store

log = structlog.get_logger()

_LOG_BYTES, _LOG_LINES = 4096, 5
_RUNS = {pb.RUNTIME_STATE_RUNNING: "READY", pb.RUNTIME_STATE_PAUSED: "PAUSED"}


@dataclass(frozen=True)
class Finding:
    """Something that differs between a record and a runtime, and what is done about it."""

    kind: str
    sandbox_id: str
    node_id: str
    action: str
    reason: str


class Reconciler:
    """Compares a node's list with the records, and puts right what differs."""

    def __init__(self, store: Store, ledger: Ledger, upkeep: Upkeep, recovery: Recovery) -> None:
        self._store = store
        self._ledger = ledger
        self._upkeep = upkeep
        self._recovery = recovery
        self._orphans: dict[tuple[str, str], float] = {}

    async def expected(self, node: Node) -> dict[str, str]:
        """Read what should be on a node; to be read before the node lists what is there."""
        return await self._upkeep.on_node(node.node_id)

    async def find(
        self, node: Node, expected: Mapping[str, str], seen: Mapping[str, pb.RuntimeSandbox]
    ) -> list[Finding]:
        """Say what differs.

        Raises:
            Recovering: The records are being rebuilt: nothing can be said.
        """
        found: list[Finding] = []
        for sandbox_id, state in expected.items():
            if state not in ("READY", "PAUSED"):
                continue
            differs = _difference(state, seen.get(sandbox_id))
            if differs is not None:
                found.append(Finding(differs[0], sandbox_id, node.node_id, *differs[1:]))
        missing = await self._upkeep.missing(node.node_id, list(seen))
        return found + [self._unrecorded(node, seen[sandbox_id]) for sandbox_id in missing]

    def _unrecorded(self, node: Node, sandbox: pb.RuntimeSandbox) -> Finding:
        if is_lost_record(sandbox, self._store.generation):
            reason = "its record was lost with an earlier store"
            return Finding("lost_record", sandbox.sandbox_id, node.node_id, "adopt", reason)
        return Finding("orphan", sandbox.sandbox_id, node.node_id, "delete", "no record has it")

    async def put_right(
        self, node: Node, found: Sequence[Finding], seen: Mapping[str, pb.RuntimeSandbox], grace_seconds: float
    ) -> None:
        """Do what the findings say; orphans are deleted when they were seen as such for the grace time."""
        for finding in found:
            if finding.action == "lose":
                await self.lose(node, finding.sandbox_id, finding.reason)
            elif finding.action == "settle":
                await self.settle(seen[finding.sandbox_id])
        orphans = {one.sandbox_id for one in found if one.action == "delete"}
        for finding in found:
            if finding.action == "adopt" and node.info is not None:
                kind = await self._recovery.adopt(node.info, seen[finding.sandbox_id])
                orphans |= {finding.sandbox_id} if kind in ("buried", "taken") else set()
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
        """Give when the next of a node's orphans has been one for the grace time, by the loop's clock."""
        now = asyncio.get_running_loop().time()
        ends = [since + grace_seconds for key, since in self._orphans.items() if key[0] == node.name]
        return min((end for end in ends if end > now), default=None)

    async def lose(self, node: Node, sandbox_id: str, reason: str) -> None:
        """Record that a sandbox ended, with its last words."""
        words = await _last_words(node, sandbox_id)
        said = f"{reason}; its last words: {words}" if words else reason
        if await self._upkeep.lost(sandbox_id, said):
            log.warning("a sandbox was lost", sandbox_id=sandbox_id, reason=said)

    async def settle(self, sandbox: pb.RuntimeSandbox) -> None:
        """Record whether a sandbox runs or is frozen, where nobody is changing that."""
        record = await self._ledger.read(sandbox.sandbox_id)
        state = _RUNS.get(sandbox.state)
        if record is not None and state and record.state in ("READY", "PAUSED") and record.state != state:
            await self._ledger.settle(sandbox.sandbox_id, state, "its runtime has it so", "driver")


def _difference(state: str, there: pb.RuntimeSandbox | None) -> tuple[str, str, str] | None:
    """Give kind, action and reason where a runtime has it otherwise than the record of a sandbox in use."""
    if there is None:
        return "ghost", "lose", "its runtime no longer has it"
    if there.state == pb.RUNTIME_STATE_ENDED:
        return "ghost", "lose", there.end_detail or "its first process ended"
    if _RUNS.get(there.state, state) != state:
        return "unsettled", "settle", f"it is {state} and its runtime has it {_RUNS[there.state]}"
    return None


async def _last_words(node: Node, sandbox_id: str) -> str:
    try:
        answer = await node.client.get_logs(pb.GetLogsRequest(sandbox_id=sandbox_id, tail_bytes=_LOG_BYTES))
    except SandmeshError:
        return ""
    lines = answer.data.decode(errors="replace").split("\n")
    return " | ".join([line.strip() for line in lines if line.strip()][-_LOG_LINES:])
