"""Stores of records that count every change as a metric."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import SandmeshError
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore, Swept
from sandmeshd.allocator.maintenance.usage import UsageMeter
from sandmeshd.allocator.records.record_reader import RecordReader
from sandmeshd.allocator.records.record_store import Claim, RecordStore, Reply
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.runtime.telemetry.metrics import AllocatorMetrics, MeshGauges, UsageGauges
from sandmeshd.store import Store

_SOURCES = {"create": "created", "pooled": "pooled", "kept": "kept"}


class MeteredRecordStore(RecordStore):
    """The records of a mesh; counts each change that this allocator makes."""

    def __init__(self, store: Store, grace_us: int, metrics: AllocatorMetrics, cost_per_day: float = 0.0) -> None:
        super().__init__(store, grace_us, cost_per_day)
        self._metrics = metrics
        self._start_times: dict[str, float] = {}
        self._queued: set[str] = set()

    async def claim(self, claim: Claim, waited: str) -> Reply:
        """Claim a sandbox, and count where it came from."""
        reply = await super().claim(claim, waited)
        if reply.kind in _SOURCES:
            self._metrics.claims.labels(_SOURCES[reply.kind]).inc()
            self._queued.discard(claim.ticket)
        elif reply.kind == "queued" and claim.ticket not in self._queued:
            self._queued.add(claim.ticket)
            self._metrics.queued.inc()
        return reply

    async def leave(self, claim: Claim) -> str:
        """Withdraw a claim."""
        self._queued.discard(claim.ticket)
        return await super().leave(claim)

    async def started(self, sandbox_id: str) -> bool:
        """Record when the driver is called."""
        self._start_times[sandbox_id] = time.monotonic()
        return await super().started(sandbox_id)

    async def ready(
        self, sandbox_id: str, access: driver_pb2.RuntimeSandbox, phases: Mapping[str, float] = MappingProxyType({})
    ) -> tuple[bool, RecordState]:
        """Count a sandbox that is ready."""
        began = self._start_times.pop(sandbox_id, None)
        done, record = await super().ready(sandbox_id, access, phases)
        if done and began is not None:
            self._metrics.create_seconds.observe(time.monotonic() - began)
            self._metrics.creates.labels("ready").inc()
        return done, record

    async def failed(self, sandbox_id: str, error: SandmeshError) -> bool:
        """Count a sandbox that could not be started."""
        self._start_times.pop(sandbox_id, None)
        done = await super().failed(sandbox_id, error)
        if done:
            self._metrics.creates.labels(error.reason).inc()
            self._metrics.create_faults.labels(error.fault).inc()
        return done


class MeteredMaintenanceStore(MaintenanceStore):
    """The changes that no client requests; counts each."""

    def __init__(
        self, store: Store, records: RecordStore, settings: AllocatorSettings, metrics: AllocatorMetrics
    ) -> None:
        super().__init__(store, records, settings)
        self._metrics = metrics

    async def sweep(self, healthy: Sequence[str], starting: Sequence[str] | None = None) -> Swept:
        """Sweep, and count what expired and what was lost with its node."""
        swept = await super().sweep(healthy, starting)
        self._metrics.reaped.inc(swept.expired + swept.idle - len(swept.pausing))
        self._metrics.lost.inc(swept.lost)
        return swept

    async def lost(self, sandbox_id: str, reason: str) -> bool:
        """Count a sandbox that ended by itself."""
        done = await super().lost(sandbox_id, reason)
        self._metrics.lost.inc(done)
        return done

    async def gone(self, sandbox_id: str, only_if_silent: bool = False) -> bool:
        """Count a sandbox that is gone."""
        done = await super().gone(sandbox_id, only_if_silent)
        self._metrics.deleted.inc(done)
        return done


async def update_gauges(gauges: MeshGauges, records: RecordReader, settings: AllocatorSettings) -> None:
    """Update the gauges from the store, which other allocators change too."""
    capacity, census = await records.capacity(), await records.census()
    gauges.sandboxes.set(capacity.used)
    gauges.capacity.set(settings.capacity)
    gauges.leases.set(census.leases)
    gauges.queue.set(census.queued)
    for template in {*settings.pools, *capacity.pooled}:
        gauges.ready.labels(template).set(capacity.pooled.get(template, 0))
        gauges.wanted.labels(template).set(settings.pools.get(template, 0))


async def update_usage(gauges: UsageGauges, usage: UsageMeter) -> None:
    """Update the gauges of usage from the store."""
    gauges.update(await usage.totals())
