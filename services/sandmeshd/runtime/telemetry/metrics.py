"""What the services count, for Prometheus. A service gets its own; nothing is registered globally.

Names and units follow https://prometheus.io/docs/practices/naming/. A label whose values others choose has a bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Refresh = Callable[[], Awaitable[None]]

CONTENT_TYPE = CONTENT_TYPE_LATEST

CREATE_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.25, 2.5, 5, 10, 30, 60)
RPC_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Observed:
    """The registry of one process, and what brings its gauges up to date before they are read."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.rpcs = RpcMetrics(self.registry)
        self._refreshers: list[Refresh] = []
        ProcessCollector(registry=self.registry)

    def before_reading(self, refresh: Refresh) -> None:
        """Register a hook that is awaited before each reading."""
        self._refreshers.append(refresh)

    async def text(self) -> bytes:
        """Return all values in Prometheus's text format."""
        for refresh in self._refreshers:
            await refresh()
        return generate_latest(self.registry)


class RpcMetrics:
    """RPCs that this process served over gRPC."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.ended = Counter(
            "sandmesh_rpcs_total", "RPCs that ended, by method and reason (OK or an ErrorReason).",
            ("method", "reason"), registry=registry,
        )  # fmt: skip
        self.open = Gauge(
            "sandmesh_open_rpcs", "RPCs under way, long streams included, by method.", ("method",), registry=registry
        )
        self.seconds = Histogram(
            "sandmesh_rpc_seconds", "How long RPCs took that are no streams, by method.", ("method",),
            buckets=RPC_BUCKETS, registry=registry,
        )  # fmt: skip
        # A look-up of labels takes longer than counting; methods and reasons are few.
        self.open_of = cache(self.open.labels)
        self.ended_of = cache(self.ended.labels)
        self.seconds_of = cache(self.seconds.labels)


class AllocatorMetrics:
    """Counts of the changes that an allocator makes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.claims = Counter(
            "sandmesh_claims_total", "Claims that got a sandbox, by where from: created, pooled or kept.", ("source",),
            registry=registry,
        )  # fmt: skip
        self.queued = Counter("sandmesh_claims_queued_total", "Claims that had to queue.", registry=registry)
        self.creates = Counter(
            "sandmesh_creates_total", "Sandboxes that were started, by result: ready or an ErrorReason.", ("result",),
            registry=registry,
        )  # fmt: skip
        self.create_faults = Counter(
            "sandmesh_create_faults_total", "Sandboxes that could not be started, by fault: task, infra or limit.",
            ("fault",), registry=registry,
        )  # fmt: skip
        self.create_seconds = Histogram(
            "sandmesh_create_seconds", "From a driver's being asked to a sandbox's being ready.",
            buckets=CREATE_BUCKETS, registry=registry,
        )  # fmt: skip
        self.deleted = Counter("sandmesh_deletes_total", "Sandboxes that are gone.", registry=registry)
        self.reaped = Counter("sandmesh_reaps_total", "Sandboxes whose lease or idle time ran out.", registry=registry)
        self.lost = Counter("sandmesh_lost_total", "Sandboxes that ended by themselves.", registry=registry)
        self.egress_refusals = Counter(
            "sandmesh_egress_refusals_total", "Connections of sandboxes that were refused.", registry=registry
        )


class MeshGauges:
    """Present numbers of sandboxes, leases, pools and the queue, as an allocator reads them from the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sandboxes = Gauge("sandmesh_sandboxes", "Sandboxes that exist or are being made.", registry=registry)
        self.capacity = Gauge("sandmesh_sandboxes_limit", "The most sandboxes there may be.", registry=registry)
        self.leases = Gauge("sandmesh_leases", "Leases in force.", registry=registry)
        self.queue = Gauge("sandmesh_queue_length", "Claims that wait for a place.", registry=registry)
        self.ready = Gauge("sandmesh_pool_ready", "Sandboxes that wait in a pool.", ("template",), registry=registry)
        self.wanted = Gauge(
            "sandmesh_pool_wanted", "Sandboxes that a pool should have.", ("template",), registry=registry
        )


class UsageGauges:
    """What projects had since ever, as the store counts it: every allocator of a mesh shows the same."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sandbox = Gauge(
            "sandmesh_usage_sandbox_seconds", "Seconds for which a project held sandboxes.", ("project",),
            registry=registry,
        )  # fmt: skip
        self._cpu = Gauge(
            "sandmesh_usage_cpu_seconds", "The same times their limits of processor time, in cores.", ("project",),
            registry=registry,
        )  # fmt: skip
        self._memory = Gauge(
            "sandmesh_usage_memory_byte_seconds", "The same times their memory limits.", ("project",),
            registry=registry,
        )  # fmt: skip
        self._egress = Gauge(
            "sandmesh_usage_egress_bytes", "Bytes that a project's sandboxes sent and received.", ("project",),
            registry=registry,
        )  # fmt: skip

    def update(self, totals: Mapping[str, Mapping[str, int]]) -> None:
        """Set the values of all projects, by project and by the measure's name in the store."""
        for project, amounts in totals.items():
            self._sandbox.labels(project).set(amounts.get("sandbox_ms", 0) / 1000)
            self._cpu.labels(project).set(amounts.get("cpu_ms", 0) / 1000)
            self._memory.labels(project).set(amounts.get("memory_byte_seconds", 0))
            self._egress.labels(project).set(amounts.get("egress_bytes", 0))
