"""Usage: the time that sandboxes are held, counted in the store, and the egress that drivers report."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import Recovering, SandmeshError, StoreUnavailable
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.runtime.beat import beat
from sandmeshd.store import Store
from sandmeshd.tenants.usage import count_usage

log = structlog.get_logger()

# Projects are made by administrators; a page of metrics stays readable all the same.
_MOST_PROJECTS = 200

_SHARE = 0.25
"""The most of the store's time that counting takes: over 100,000 sandboxes it needed 1 to 7 s of it in 30."""


class UsageMeter:
    """Count usage regularly: what is not counted yet when everything crashes is lost."""

    def __init__(self, store: Store, nodes: Nodes, owner: str) -> None:
        self._store = store
        self._nodes = nodes
        self._owner = owner

    async def run(self, seconds: float) -> None:
        """Wait for the interval, then count, unless another allocator did within it."""
        await beat(seconds)
        try:
            await self.count(seconds)
        except Recovering:
            log.info("usage is counted once the records are rebuilt")

    async def count(self, seconds: float) -> None:
        """Count what all sandboxes had since the last time, unless another allocator did just now."""
        arguments = {"owner": self._owner, "interval_ms": max(1, int(seconds * 900))}
        if (await self._store.run("usage_tick", arguments))[0]:
            await count_usage(self._store, share=_SHARE)
            await asyncio.gather(*(self._count_egress(node) for node in self._nodes.all))

    async def _count_egress(self, node: Node) -> None:
        request = pb.ListSandboxesRequest(mesh_id=self._store.mesh_id, only_egress=True)
        try:
            listed = await node.client.list_sandboxes(request)
        except SandmeshError as error:
            log.info("the egress of a node is counted later", node=node.name, error=error.message)
            return
        await self.add_egress(listed.egress_bytes)

    async def add_egress(self, totals: Mapping[str, int]) -> None:
        """Record the bytes of sandboxes since their driver started, by id."""
        if totals:
            await self._store.run("usage_egress", {"totals": dict(totals)})

    async def end_egress(self, sandbox_id: str, total: int) -> None:
        """Record the bytes of a deleted sandbox; without the store those since the last count are lost."""
        if not total:
            return
        try:
            await self.add_egress({sandbox_id: total})
        except (StoreUnavailable, Recovering) as error:
            log.warning("the last egress of a sandbox is not counted", sandbox_id=sandbox_id, error=error.message)

    async def totals(self) -> dict[str, dict[str, int]]:
        """Return what projects had since ever, by project and measure."""
        flat = [value.decode() for value in await self._store.run("usage_totals", {})]
        totals: dict[str, dict[str, int]] = {}
        for name, amount in zip(flat[::2], flat[1::2], strict=True):
            measure, _, project = name.partition(":")
            if project in totals or len(totals) < _MOST_PROJECTS:
                totals.setdefault(project, {})[measure] = int(amount)
        return totals
