"""What a gateway counts of the calls that pass it, by a few increments each.

Names and units follow https://prometheus.io/docs/practices/naming/. A label whose values others choose has a bound.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

MOST_TOOLS = 200
OTHER = "other"

CALL_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


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
        self.faults = Counter(
            "sandmesh_call_faults_total", "Calls that a limit ended, or that failed for the mesh's part, by fault.",
            ("fault",), registry=registry,
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
        self.tools: dict[str, ToolMetrics] = {}
        self.open.set_function(lambda: self.followed)

    def add_tool(self, name: str) -> ToolMetrics:
        """Add a tool, or return those of `other` once very many were seen, as anybody may make up names."""
        name = name if len(self.tools) < MOST_TOOLS else OTHER
        found = self.tools[name] = self.tools.get(name) or ToolMetrics(self, name)
        return found


class ToolMetrics:
    """What a gateway counts of one tool's calls, found once so that a call need not look for it."""

    def __init__(self, metrics: GatewayMetrics, name: str) -> None:
        self.started = metrics.started.labels(name)
        self.seconds = metrics.seconds.labels(name)
        self.ended: dict[str, Counter] = {}
        """The calls that ended, by reason."""
        self._metrics = metrics
        self._name = name

    def add_reason(self, reason: str) -> Counter:
        """Add the counter of calls that ended for a reason."""
        counter = self.ended[reason] = self._metrics.ended.labels(self._name, reason)
        return counter
