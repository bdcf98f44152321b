"""What the services count, for Prometheus. A service gets its own; nothing is registered globally.

Names and units follow https://prometheus.io/docs/practices/naming/. A label whose values others choose has a bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Refresh = Callable[[], Awaitable[None]]

CONTENT_TYPE = CONTENT_TYPE_LATEST
MOST_TOOLS = 200
OTHER = "other"

CALL_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
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


class GatewayMetrics:
    """Calls that a gateway carried."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.started = Counter(
            "sandmesh_calls_started_total", "Calls that were sent to an agent, by tool.", ("tool",), registry=registry
        )
        self.ended = Counter(
            "sandmesh_calls_total",
            "Calls that ended, by tool and reason: an EndReason, or the ErrorReason of one that was refused.",
            ("tool", "reason"), registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "sandmesh_call_seconds", "From a call's start at the gateway to its result, by tool.", ("tool",),
            buckets=CALL_BUCKETS, registry=registry,
        )  # fmt: skip
        self.open = Gauge("sandmesh_open_calls", "Calls that a caller follows now.", registry=registry)
        self.links = Gauge("sandmesh_agent_links", "Open links to agents, but for those to pools.", registry=registry)
        self.received = Counter(
            "sandmesh_call_input_bytes_total", "Bytes of arguments and input, to agents.", registry=registry
        )
        self.sent = Counter("sandmesh_call_output_bytes_total", "Bytes of events, from agents.", registry=registry)
        self.followed = 0
        """How many calls are followed now; a plain number, as each call changes it twice."""
        self._tools: dict[str, ToolMetrics] = {}
        self.open.set_function(lambda: self.followed)

    def tool(self, name: str) -> ToolMetrics:
        """Return a tool's, or those of `other` once very many were seen, as anybody may make up names."""
        found = self._tools.get(name)
        if found is None:
            name = name if len(self._tools) < MOST_TOOLS else OTHER
            found = self._tools.get(name) or ToolMetrics(self, name)
            self._tools[name] = found
        return found


class ToolMetrics:
    """What a gateway counts of one tool's calls, found once so that a call need not look for it."""

    def __init__(self, metrics: GatewayMetrics, name: str) -> None:
        self.started = metrics.started.labels(name)
        self.seconds = metrics.seconds.labels(name)
        self._ended = metrics.ended
        self._name = name
        self._reasons: dict[str, Counter] = {}

    def ended(self, reason: str) -> Counter:
        """Return the counter of calls that ended for a reason."""
        found = self._reasons.get(reason)
        if found is None:
            found = self._reasons[reason] = self._ended.labels(self._name, reason)
        return found


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
