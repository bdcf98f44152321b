"""Opens an allocator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

from sandmesh.errors import Recovering, StoreUnavailable
from sandmeshd.allocator.background import Background
from sandmeshd.allocator.claims.claims import Claims
from sandmeshd.allocator.claims.pools import Pools
from sandmeshd.allocator.claims.starts import Starts
from sandmeshd.allocator.metered_ledger import MeteredLedger, MeteredUpkeep
from sandmeshd.allocator.nodes.logs import Logs
from sandmeshd.allocator.nodes.nodes import DriverClient, Nodes
from sandmeshd.allocator.nodes.pause import Pausing
from sandmeshd.allocator.nodes.snapshots import Snapshotting
from sandmeshd.allocator.records.journal import Journal
from sandmeshd.allocator.servicer import SandboxServicer, Work
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.allocator.upkeep.deletions import Deletions
from sandmeshd.allocator.upkeep.drain import Emptying
from sandmeshd.allocator.upkeep.health import Health
from sandmeshd.allocator.upkeep.reconcile import Reconciler
from sandmeshd.allocator.upkeep.recovery import Recovery
from sandmeshd.allocator.upkeep.store_health import Pulse
from sandmeshd.allocator.upkeep.sweep import Sweeping
from sandmeshd.allocator.upkeep.upkeep import Upkeep
from sandmeshd.allocator.upkeep.watch import Watch
from sandmeshd.runtime.metrics import AllocatorMetrics, Observed
from sandmeshd.store import Store

log = structlog.get_logger()

_FINISH_SECONDS = 5.0


@asynccontextmanager
async def open_allocator(
    settings: AllocatorSettings,
    store: Store,
    drivers: Mapping[str, DriverClient],
    measured: Observed | None = None,
) -> AsyncGenerator[SandboxServicer]:
    """Own the records of a mesh, with others of its kind on the same store, until the block ends.

    Its end loses nothing: what it was starting is given up, what it was deleting is taken over by the next one.

    Raises:
        StoreUnavailable: The store does not answer.
    """
    background, filling = Background(), Background()
    measured = measured or Observed()
    metrics = AllocatorMetrics(measured.registry)
    ledger = MeteredLedger(store, int(settings.owner_grace_seconds * 1e6), metrics)
    measured.before_reading(lambda: ledger.measure(settings))
    upkeep = MeteredUpkeep(store, ledger, settings, metrics)
    nodes = Nodes(drivers, settings, background)
    recovery = Recovery(settings, store, upkeep, nodes)
    reconciler = Reconciler(store, ledger, upkeep, recovery)
    journal = Journal(store, settings.event_poll_seconds)
    starts = Starts(settings, ledger, nodes, background, store.mesh_id)
    await _begin(recovery, upkeep, nodes, starts)
    watch = Watch(settings, store.mesh_id, nodes, reconciler, journal)
    watch.count_refusals(metrics.egress_refusals)
    watch.open(background)
    Deletions(settings, store, upkeep, nodes, starts).open(background)
    pools = Pools(settings, store, ledger, nodes, starts)
    pools.open(filling)
    pulse = Pulse(store)
    background.forever("look at the store", pulse.look)
    background.forever("sweep", lambda: _sweep(settings, upkeep, nodes, starts, recovery))
    snapshots = Snapshotting(ledger, nodes, store.mesh_id)
    work = Work(
        claims=Claims(settings, store, ledger, nodes, starts, snapshots),
        pausing=Pausing(ledger, nodes),
        journal=journal,
        sweeping=Sweeping(upkeep, nodes, reconciler, store.mesh_id),
        emptying=Emptying(store, ledger, filling),
        logs=Logs(nodes),
        snapshots=snapshots,
        health=Health(store, pulse, nodes),
        nodes=nodes,
        pooled=pools.pooled,
    )
    try:
        yield SandboxServicer(settings, ledger, work)
    finally:
        await filling.finish(0.0)
        await background.finish(0.0 if settings.ephemeral else _FINISH_SECONDS)
        await _say_farewell(upkeep)


async def _say_farewell(upkeep: Upkeep) -> None:
    with suppress(StoreUnavailable):
        await upkeep.farewell()


async def _sweep(settings: AllocatorSettings, upkeep: Upkeep, nodes: Nodes, starts: Starts, recovery: Recovery) -> None:
    await asyncio.sleep(settings.sweep_seconds)
    try:
        await _sweep_once(upkeep, nodes, starts)
    except Recovering:
        log.warning("the store came back empty: records are rebuilt before anything is made or deleted")
        await recovery.run()


async def _begin(recovery: Recovery, upkeep: Upkeep, nodes: Nodes, starts: Starts) -> None:
    await nodes.greet()
    if await recovery.run(patient=False):
        await _sweep_once(upkeep, nodes, starts)


async def _sweep_once(upkeep: Upkeep, nodes: Nodes, starts: Starts) -> None:
    swept = await upkeep.sweep(nodes.healthy_ids(), starts.under_way)
    if swept.expired or swept.idle or swept.abandoned or swept.lost:
        log.info(
            "records were swept", expired=swept.expired, idle=swept.idle, abandoned=swept.abandoned, lost=swept.lost
        )
