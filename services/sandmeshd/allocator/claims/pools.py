"""Pools of sandboxes that are kept ready and unused."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.claims.pool_subscribers import PoolSubscribers
from sandmeshd.allocator.claims.starter import ClaimStarter
from sandmeshd.allocator.nodes.nodes import Nodes, Placement
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.allocator.records.spec import new_sandbox_id
from sandmeshd.allocator.rounds import wait_with_timeout
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.store import Store

log = structlog.get_logger()

_LONGEST_DELAY_SECONDS = 60.0


class Pools:
    """Refill every pool as soon as one of its sandboxes is claimed."""

    def __init__(
        self, settings: AllocatorSettings, store: Store, records: RecordStore, nodes: Nodes, starter: ClaimStarter
    ) -> None:
        self.subscribers = PoolSubscribers(records)
        """Are notified of each sandbox that is added."""
        self._settings = settings
        self._notifications = store.notifications
        self._records = records
        self._nodes = nodes
        self._starter = starter
        self._slots = asyncio.Semaphore(settings.pool_concurrency)

    async def drain(self) -> None:
        """Stop what a pool has above its maximum, and obsolete pools, such as that of a changed template."""
        sizes: dict[str, int] = {}
        for name, least in self._settings.pools.items():
            placement = await self._nodes.place(pb.SandboxSpec(template=name))
            sizes[placement.want.spec_key] = max(least, self._settings.pool_maxima.get(name, least))
        stopped = await self._records.drain(sizes)
        if stopped:
            log.info("unused sandboxes of pools are stopped", count=stopped)

    def open(self, tasks: BackgroundTasks) -> None:
        """Keep all pools full until `tasks` is finished."""
        # A template that was rebuilt has another key, which the next health check of its node shows.
        tasks.regularly("drain pools", self._settings.health_seconds, self.drain)
        for template, size in self._settings.pools.items():
            pool = _Pool(template, size)
            tasks.forever(f"fill pool {template}", partial(self._fill, pool, tasks))

    async def _fill(self, pool: _Pool, tasks: BackgroundTasks) -> None:
        with self._notifications.subscribe("pool") as woken:
            while True:
                woken.clear()
                placement = await self._nodes.place(pb.SandboxSpec(template=pool.template))
                while await self._add(pool, placement, tasks):
                    pass
                await wait_with_timeout(woken, tasks.rounds.seconds(self._settings.poll_seconds))
                # A start takes both cores: the claim that emptied the pool makes its first call before.
                await asyncio.sleep(max(pool.delay, self._settings.pool_pause_seconds if woken.is_set() else 0.0))

    async def _add(self, pool: _Pool, placement: Placement, tasks: BackgroundTasks) -> bool:
        if pool.delay and pool.starting:
            return False
        await self._slots.acquire()
        record: RecordState | None = None
        try:
            record = await self._records.fill(new_sandbox_id(), placement.spec, placement.want, pool.size)
        finally:
            if record is None:
                self._slots.release()
        if record is None:
            return False
        pool.starting += 1
        tasks.spawn(self._start(pool, record))
        return not pool.delay

    async def _start(self, pool: _Pool, record: RecordState) -> None:
        try:
            outcome = await self._starter.start(record)
        finally:
            self._slots.release()
            pool.starting -= 1
        if isinstance(outcome, SandmeshError):
            pool.delay = min(max(pool.delay * 2, 0.5), _LONGEST_DELAY_SECONDS)
            log.warning("a pool cannot be filled", template=pool.template, error=outcome.message, retry_in=pool.delay)
        else:
            pool.delay = 0.0
            self.subscribers.publish(outcome)


class _Pool:
    """A pool: while `delay` is not 0 its last start failed, and one is attempted at a time."""

    def __init__(self, template: str, size: int) -> None:
        self.template = template
        self.size = size
        self.delay = 0.0
        self.starting = 0
