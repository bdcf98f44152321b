"""Keeps sandboxes ready and unused."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.allocator.background import Background, wait_briefly
from sandmeshd.allocator.claims.pooled import Pooled
from sandmeshd.allocator.claims.starts import Starts
from sandmeshd.allocator.nodes.nodes import Nodes, Placement
from sandmeshd.allocator.records.ledger import Ledger
from sandmeshd.allocator.records.records import Record
from sandmeshd.allocator.records.spec import new_sandbox_id
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.store import Store

log = structlog.get_logger()

_LONGEST_DELAY_SECONDS = 60.0


class Pools:
    """Refills every pool as soon as one of its sandboxes is taken."""

    def __init__(self, settings: AllocatorSettings, store: Store, ledger: Ledger, nodes: Nodes, starts: Starts) -> None:
        self.pooled = Pooled(ledger)
        """What hears of each sandbox that is added."""
        self._settings = settings
        self._notices = store.notices
        self._ledger = ledger
        self._nodes = nodes
        self._starts = starts
        self._slots = asyncio.Semaphore(settings.pool_concurrency)

    async def drain_unwanted(self) -> None:
        """Give up what a pool has above its most, and pools no longer wanted, as that of a changed template."""
        sizes: dict[str, int] = {}
        for name, least in self._settings.pools.items():
            placement = await self._nodes.place(pb.SandboxSpec(template=name))
            sizes[placement.want.spec_key] = max(least, self._settings.pool_maxima.get(name, least))
        stopped = await self._ledger.drain(sizes)
        if stopped:
            log.info("unused sandboxes of pools are given up", count=stopped)

    def open(self, background: Background) -> None:
        """Keep all pools full until the background ends."""
        background.forever("drain pools", self._drain_once)
        for template, size in self._settings.pools.items():
            pool = _Pool(template, size)
            background.forever(f"fill pool {template}", partial(self._fill, pool, background))

    async def _drain_once(self) -> None:
        await self.drain_unwanted()
        # A template that was built anew has another key, which the next look at its node tells.
        await asyncio.sleep(self._settings.health_seconds)

    async def _fill(self, pool: _Pool, background: Background) -> None:
        with self._notices.expect("pool") as woken:
            while True:
                woken.clear()
                placement = await self._nodes.place(pb.SandboxSpec(template=pool.template))
                while await self._add(pool, placement, background):
                    pass
                await wait_briefly(woken, self._settings.poll_seconds)
                # A start takes both cores: the claim that made room for it has its first call first.
                await asyncio.sleep(max(pool.delay, self._settings.pool_pause_seconds))

    async def _add(self, pool: _Pool, placement: Placement, background: Background) -> bool:
        if pool.delay and pool.under_way:
            return False
        await self._slots.acquire()
        record: Record | None = None
        try:
            record = await self._ledger.fill(new_sandbox_id(), placement.spec, placement.want, pool.size)
        finally:
            if record is None:
                self._slots.release()
        if record is None:
            return False
        pool.under_way += 1
        background.spawn(self._start(pool, record))
        return not pool.delay

    async def _start(self, pool: _Pool, record: Record) -> None:
        try:
            outcome = await self._starts.begin(record)
        finally:
            self._slots.release()
            pool.under_way -= 1
        if isinstance(outcome, SandmeshError):
            pool.delay = min(max(pool.delay * 2, 0.5), _LONGEST_DELAY_SECONDS)
            log.warning("a pool cannot be filled", template=pool.template, error=outcome.message, retry_in=pool.delay)
        else:
            pool.delay = 0.0
            self.pooled.add(outcome)


class _Pool:
    """One pool: while `delay` is not 0 its last start failed, and one is tried at a time."""

    def __init__(self, template: str, size: int) -> None:
        self.template = template
        self.size = size
        self.delay = 0.0
        self.under_way = 0
