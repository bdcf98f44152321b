"""Watching of every node: its changes, its health, and periodically everything that it has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial

import structlog
from prometheus_client import Counter

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.maintenance.reconciler import Reconciler
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.event_log import EventLog
from sandmeshd.allocator.rounds import turns
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.runtime.rpc.iteration import ended

log = structlog.get_logger()

_AGAIN_SECONDS = 0.5

_MOST_A_SECOND = 250
"""How many nodes are asked for their health in a second: of more, each is asked less often."""


class NodeWatch:
    """Keep the records consistent with what the nodes report."""

    def __init__(
        self,
        settings: AllocatorSettings,
        mesh_id: str,
        nodes: Nodes,
        reconciler: Reconciler,
        event_log: EventLog,
        refusals: Counter,
    ) -> None:
        """`refusals` counts the refused connections of sandboxes."""
        self._settings = settings
        self._mesh_id = mesh_id
        self._nodes = nodes
        self._reconciler = reconciler
        self._event_log = event_log
        self._refusals = refusals
        self._compared: set[str] = set()
        self._health_seconds = max(settings.health_seconds, len(nodes.all) / _MOST_A_SECOND)
        self._turns = dict(
            zip((node.name for node in nodes.all), turns(len(nodes.all), self._health_seconds), strict=True)
        )
        """The seconds after which each node is asked in a round."""

    def open(self, tasks: BackgroundTasks) -> None:
        """Watch every node until `tasks` is finished."""
        for node in self._nodes.all:
            tasks.forever(f"watch {node.name}", partial(self._watch, node))
            tasks.regularly(f"health of {node.name}", self._health_seconds, partial(self._check_health, node))

    async def _check_health(self, node: Node) -> None:
        await self._turn(node)
        with suppress(SandmeshError):  # the node counts its failures
            await node.refresh()

    async def _turn(self, node: Node) -> None:
        if self._turns[node.name]:
            await asyncio.sleep(self._turns[node.name])

    async def _watch(self, node: Node) -> None:
        if node.name not in self._compared:
            await self._turn(node)
        await node.refresh()
        # Read first: what is created from now on is not expected among what the driver lists.
        expected = await self._reconciler.expected(node)
        request = pb.WatchSandboxesRequest(mesh_id=self._mesh_id)
        try:
            async with asyncio.timeout(self._seconds(node)) as bound:
                async with ended(node.client.watch_sandboxes(request)) as changes:
                    await self._read(node, expected, changes, bound)
                # A driver that ends its stream is called again, but not without a pause.
                await asyncio.sleep(_AGAIN_SECONDS)
        except TimeoutError:
            return

    def _seconds(self, node: Node) -> float:
        """Return how long to watch before the next comparison; the first ones are spread, so that all nodes' are."""
        whole = self._settings.reconcile_seconds
        if node.name in self._compared:
            return whole
        self._compared.add(node.name)
        return random.uniform(whole / len(self._nodes.all), whole)  # noqa: S311 - a time, not a secret

    async def _read(
        self,
        node: Node,
        expected: Mapping[str, str],
        changes: AsyncIterator[pb.WatchSandboxesResponse],
        bound: asyncio.Timeout,
    ) -> None:
        seen: dict[str, pb.RuntimeSandbox] = {}
        synced = False
        async for change in changes:
            if change.synced:
                found = await self._reconciler.find(node, expected, seen)
                await self._reconciler.repair(node, found, seen, self._settings.orphan_grace_seconds)
                self._stop_for_orphans(node, bound)
                synced = True
            elif change.HasField("egress_refusal"):
                await self._record_refusal(change.egress_refusal)
            else:
                before = seen.get(change.sandbox.sandbox_id)
                seen[change.sandbox.sandbox_id] = change.sandbox
                if synced:
                    await self._observe(node, change.sandbox, before)

    def _stop_for_orphans(self, node: Node, bound: asyncio.Timeout) -> None:
        end, planned = self._reconciler.next_grace_end(node, self._settings.orphan_grace_seconds), bound.when()
        if end is not None and planned is not None:
            bound.reschedule(min(end, planned))

    async def _record_refusal(self, refusal: pb.EgressRefusal) -> None:
        self._refusals.inc(max(1, refusal.count))
        times = f", {refusal.count} times" if refusal.count > 1 else ""
        reason = f"{refusal.host}:{refusal.port}{times}: {refusal.reason}"
        await self._event_log.append(refusal.sandbox_id, "egress_refused", reason, "driver")

    async def _observe(self, node: Node, sandbox: pb.RuntimeSandbox, before: pb.RuntimeSandbox | None) -> None:
        if sandbox.state == pb.RUNTIME_STATE_ENDED:
            await self._reconciler.lose(node, sandbox.sandbox_id, sandbox.end_detail or "its first process ended")
        elif pb.RUNTIME_STATE_PAUSED in (sandbox.state, before.state if before else sandbox.state):
            await self._reconciler.settle(sandbox)
