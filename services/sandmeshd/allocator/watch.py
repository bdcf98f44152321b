"""Holds records and runtimes together, both ways: what ended is LOST, what nobody recorded is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.allocator.background import Background
from sandmeshd.allocator.ledger import Ledger
from sandmeshd.allocator.nodes import Node, Nodes
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.store import Store

log = structlog.get_logger()

_LOG_BYTES, _LOG_LINES = 4096, 5
_AGAIN_SECONDS = 0.5


class Watch:
    """Follows every node, and compares it with the records in full now and then."""

    def __init__(self, settings: AllocatorSettings, store: Store, ledger: Ledger, nodes: Nodes) -> None:
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._nodes = nodes
        self._orphans: dict[tuple[str, str], float] = {}

    def open(self, background: Background) -> None:
        """Follow until the background ends."""
        for node in self._nodes.all:
            background.forever(f"watch {node.name}", partial(self._follow, node))

    async def _follow(self, node: Node) -> None:
        info = await node.refresh()
        # Read first: what is made from now on is not expected among what the driver lists.
        expected = await self._ledger.on_node(info.node_id)
        request = pb.WatchSandboxesRequest(mesh_id=self._store.mesh_id)
        try:
            async with asyncio.timeout(self._settings.reconcile_seconds):
                await self._read(node, expected, node.client.watch_sandboxes(request))
                # A driver that ends its stream is asked again, but not without a pause.
                await asyncio.sleep(_AGAIN_SECONDS)
        except TimeoutError:
            return

    async def _read(
        self, node: Node, expected: dict[str, str], changes: AsyncIterator[pb.WatchSandboxesResponse]
    ) -> None:
        seen: dict[str, pb.RuntimeSandbox] = {}
        async for change in changes:
            if change.synced:
                await self._compare(node, expected, seen)
            elif change.HasField("egress_refusal"):
                self._refused(node, change.egress_refusal)
            else:
                seen[change.sandbox.sandbox_id] = change.sandbox
                await self._observe(node, change.sandbox)

    def _refused(self, node: Node, refusal: pb.EgressRefusal) -> None:
        # The one place where the allocator hears of refusals.
        where = {"host": refusal.host, "port": refusal.port, "reason": refusal.reason, "count": refusal.count}
        log.info("egress was refused", sandbox_id=refusal.sandbox_id, node=node.name, **where)

    async def _observe(self, node: Node, sandbox: pb.RuntimeSandbox) -> None:
        if sandbox.state != pb.RUNTIME_STATE_ENDED:
            return
        record = await self._ledger.read(sandbox.sandbox_id)
        if record is not None and record.state in ("READY", "PAUSED", "STARTING"):
            reason = sandbox.end_detail or "its first process ended"
            words = await _last_words(node, sandbox.sandbox_id)
            await self._lose(sandbox.sandbox_id, f"{reason}; its last words: {words}" if words else reason)

    async def _lose(self, sandbox_id: str, reason: str) -> None:
        if await self._ledger.lost(sandbox_id, reason):
            log.warning("a sandbox was lost", sandbox_id=sandbox_id, reason=reason)

    async def _compare(self, node: Node, expected: dict[str, str], seen: dict[str, pb.RuntimeSandbox]) -> None:
        for sandbox_id, state in expected.items():
            if state in ("READY", "PAUSED") and sandbox_id not in seen:
                await self._lose(sandbox_id, "its runtime no longer has it")
        unknown = await self._ledger.missing(list(seen))
        ours = [seen[sandbox_id] for sandbox_id in unknown if self._is_ours(seen[sandbox_id])]
        await self._delete_orphans(node, ours)

    def _is_ours(self, sandbox: pb.RuntimeSandbox) -> bool:
        # Records of another generation were lost with the store: these are users' sandboxes, not orphans.
        generation = sandbox.record_labels.get("generation", self._store.generation)
        if generation != self._store.generation:
            log.warning("a sandbox's record was lost with the store", sandbox_id=sandbox.sandbox_id)
        return generation == self._store.generation

    async def _delete_orphans(self, node: Node, orphans: Sequence[pb.RuntimeSandbox]) -> None:
        now = asyncio.get_running_loop().time()
        known = {(node.name, orphan.sandbox_id) for orphan in orphans}
        self._orphans = {key: since for key, since in self._orphans.items() if key[0] != node.name or key in known}
        for orphan in orphans:
            since = self._orphans.setdefault((node.name, orphan.sandbox_id), now)
            if now - since >= self._settings.orphan_grace_seconds:
                log.warning("a sandbox without a record is deleted", sandbox_id=orphan.sandbox_id, node=node.name)
                await node.client.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=orphan.sandbox_id))


async def _last_words(node: Node, sandbox_id: str) -> str:
    try:
        answer = await node.client.get_logs(pb.GetLogsRequest(sandbox_id=sandbox_id, tail_bytes=_LOG_BYTES))
    except SandmeshError:
        return ""
    lines = answer.data.decode(errors="replace").split("\n")
    return " | ".join([line.strip() for line in lines if line.strip()][-_LOG_LINES:])
