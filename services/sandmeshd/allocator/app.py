"""The composition root of the allocator."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import structlog

from sandmesh.errors import Recovering, SandmeshError, StoreUnavailable
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.claims.claims import Claims
from sandmeshd.allocator.claims.pools import Pools
from sandmeshd.allocator.claims.starter import ClaimStarter
from sandmeshd.allocator.maintenance.deletions import Deletions
from sandmeshd.allocator.maintenance.evacuation import Evacuation
from sandmeshd.allocator.maintenance.health import HealthReporter
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.maintenance.node_watch import NodeWatch
from sandmeshd.allocator.maintenance.reconciler import Reconciler
from sandmeshd.allocator.maintenance.recovery import Recovery
from sandmeshd.allocator.maintenance.store_monitor import PROBE_SECONDS, RISKS_SECONDS, StoreMonitor
from sandmeshd.allocator.maintenance.sweep import MeshSweep
from sandmeshd.allocator.maintenance.usage import UsageMeter
from sandmeshd.allocator.metered_records import MeteredMaintenanceStore, MeteredRecordStore, update_gauges, update_usage
from sandmeshd.allocator.nodes.logs import SandboxLogs
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.nodes.snapshots import NodeSnapshots
from sandmeshd.allocator.pauses.control import PauseControl
from sandmeshd.allocator.records.event_log import EventLog
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.secrets.rotation import Rotation
from sandmeshd.allocator.secrets.secret_records import SecretRecords
from sandmeshd.allocator.secrets.servicer import SecretServicer
from sandmeshd.allocator.secrets.specs import SecretSpecs
from sandmeshd.allocator.servicer import Components, SandboxServicer
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.auth.sealer import Sealer
from sandmeshd.contracts.driver import Driver
from sandmeshd.runtime.telemetry.metrics import AllocatorMetrics, MeshGauges, Observed, UsageGauges
from sandmeshd.store import Store
from sandmeshd.tenants.holdings import Holdings

log = structlog.get_logger()

_FINISH_SECONDS = 5.0

SweepOnce = Callable[[], Awaitable[float | None]]


@asynccontextmanager
async def open_allocator(
    settings: AllocatorSettings,
    store: Store,
    drivers: Mapping[str, Driver],
    measured: Observed | None = None,
    broken: Mapping[tuple[str, str], SandmeshError] | None = None,
) -> AsyncGenerator[SandboxServicer]:
    """Own the records of a mesh, with others of its kind on the same store, until the block ends.

    Nothing is lost when it ends: its starts are abandoned, and the next allocator takes its deletions over. `broken`
    has the templates that could not be made ready before, by the driver's and the template's names.

    Raises:
        StoreUnavailable: The store does not answer.
    """
    tasks = BackgroundTasks()
    filling = BackgroundTasks(tasks.rounds)
    measured = measured or Observed()
    metrics = AllocatorMetrics(measured.registry)
    records = MeteredRecordStore(store, int(settings.owner_grace_seconds * 1e6), metrics, settings.cost_per_day)
    maintenance = MeteredMaintenanceStore(store, records, settings, metrics)
    nodes = Nodes(drivers, settings, tasks)
    recovery = Recovery(settings, store, maintenance, nodes)
    reconciler = Reconciler(store, records, maintenance, recovery)
    event_log = EventLog(store, settings.event_poll_seconds)
    starter = ClaimStarter(settings, records, nodes, tasks, store.mesh_id)
    pause = PauseControl(records, nodes, store.notifications, tasks)
    sweep_once = partial(_sweep_once, maintenance, nodes, starter, lambda idle: tasks.attempt(pause.pause_idle(idle)))
    await _recover(recovery, nodes, sweep_once, broken or {})
    NodeWatch(settings, store.mesh_id, nodes, reconciler, event_log, metrics.egress_refusals).open(tasks)
    usage = _open_usage(settings, store, nodes, records, measured, tasks)
    Deletions(settings, store, maintenance, nodes, starter, usage).open(tasks)
    pools = Pools(settings, store, records, nodes, starter)
    pools.open(filling)
    tasks.regularly("sweep", settings.sweep_seconds, partial(_sweep, sweep_once, recovery))
    snapshots = NodeSnapshots(records, nodes, store.mesh_id, Holdings(store))
    components = Components(
        claims=Claims(settings, store, records, nodes, starter, snapshots),
        pause=pause,
        event_log=event_log,
        sweep=MeshSweep(maintenance, nodes, reconciler, store.mesh_id),
        evacuation=Evacuation(store, records, maintenance, filling),
        logs=SandboxLogs(nodes),
        snapshots=snapshots,
        health=HealthReporter(store, _monitor(store, settings, tasks), nodes),
        nodes=nodes,
        pool_subscribers=pools.subscribers,
        rounds=tasks.rounds,
    )
    async with _finished(maintenance, filling, tasks, 0.0 if settings.ephemeral else _FINISH_SECONDS):
        yield SandboxServicer(settings, records, components, _secret_servicer(settings, store, records, nodes))


@asynccontextmanager
async def _finished(
    maintenance: MaintenanceStore, filling: BackgroundTasks, tasks: BackgroundTasks, seconds: float
) -> AsyncGenerator[None]:
    """Finish the tasks when the block ends, within so many seconds, and announce the allocator's end."""
    try:
        yield
    finally:
        await filling.finish(0.0)
        await tasks.finish(seconds)
        with suppress(StoreUnavailable):
            await maintenance.announce_exit()


def _monitor(store: Store, settings: AllocatorSettings, tasks: BackgroundTasks) -> StoreMonitor:
    monitor = StoreMonitor(store, settings.pause_seconds)
    tasks.regularly("probe the store", PROBE_SECONDS, monitor.probe)
    tasks.regularly("read the store's settings", RISKS_SECONDS, monitor.read_risks)
    return monitor


def _open_usage(
    settings: AllocatorSettings,
    store: Store,
    nodes: Nodes,
    records: RecordStore,
    measured: Observed,
    tasks: BackgroundTasks,
) -> UsageMeter:
    """Count usage until `tasks` is finished, and show it and the mesh's present numbers as metrics."""
    usage = UsageMeter(store, nodes, records.owner)
    gauges, usage_gauges = MeshGauges(measured.registry), UsageGauges(measured.registry)
    measured.before_reading(lambda: update_gauges(gauges, records, settings))
    measured.before_reading(lambda: update_usage(usage_gauges, usage))
    tasks.forever("count usage", lambda: usage.run(settings.usage_seconds))
    return usage


def _secret_servicer(settings: AllocatorSettings, store: Store, records: RecordStore, nodes: Nodes) -> SecretServicer:
    sealer, secrets = Sealer(settings.mesh_secret.get_secret_value()), SecretRecords(store)
    return SecretServicer(records, secrets, Rotation(records, nodes, sealer), SecretSpecs(secrets, sealer))


async def _sweep(sweep_once: SweepOnce, recovery: Recovery) -> float | None:
    try:
        return await sweep_once()
    except Recovering:
        log.warning("the store came back empty: records are rebuilt before anything is created or deleted")
        await recovery.run()
        return 0.0


async def _recover(
    recovery: Recovery, nodes: Nodes, sweep_once: SweepOnce, broken: Mapping[tuple[str, str], SandmeshError]
) -> None:
    await nodes.refresh_all()
    if await recovery.run(wait_for_nodes=False):
        await sweep_once()
    nodes.note_broken(broken)


async def _sweep_once(
    maintenance: MaintenanceStore, nodes: Nodes, starter: ClaimStarter, pause_idle: Callable[[Sequence[str]], object]
) -> float | None:
    """Return in how many seconds there is something to sweep again; None: nothing is known yet."""
    while True:
        swept = await maintenance.sweep(nodes.healthy_ids(), starter.in_progress)
        if swept.expired or swept.idle or swept.abandoned or swept.lost:
            log.info(
                "records were swept", expired=swept.expired, idle=swept.idle, abandoned=swept.abandoned, lost=swept.lost
            )
        if swept.pausing:
            pause_idle(swept.pausing)
        if not swept.is_full:
            return 0.0 if starter.in_progress else swept.next_seconds
