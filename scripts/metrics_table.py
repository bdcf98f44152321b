"""Print the rows of docs/observability.md that list the metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from sandmeshd.gateway.metrics import GatewayMetrics
from sandmeshd.gateway.routes.sandbox_use import SandboxGauges
from sandmeshd.runtime.telemetry.metrics import AllocatorMetrics, MeshGauges, RpcMetrics, UsageGauges


def rows() -> list[str]:
    """Return a row for each metric, by name."""
    registry = CollectorRegistry()
    kinds = (RpcMetrics, GatewayMetrics, SandboxGauges, AllocatorMetrics, MeshGauges, UsageGauges)
    parts = [kind(registry) for kind in kinds]
    found = [value for part in parts for value in vars(part).values() if isinstance(value, MetricWrapperBase)]
    return sorted(_row(metric) for metric in found)


def _row(metric: MetricWrapperBase) -> str:
    [family] = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    # There is no public way to read them.
    names: tuple[str, ...] = vars(metric)["_labelnames"]
    labels = ", ".join(f"`{label}`" for label in names)
    return f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


if __name__ == "__main__":
    print("\n".join(rows()))
