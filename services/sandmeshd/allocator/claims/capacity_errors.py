"""The errors of a full mesh and of quotas that are reached: what is in use, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from sandmesh.errors import InvalidArgument, PoolExhausted, QuotaExceeded, SandmeshError
from sandmeshd.allocator.records.record_reader import UsageCounts
from sandmeshd.allocator.records.record_store import Want
from sandmeshd.allocator.records.records import NANO, timestamp
from sandmeshd.tenants.quotas import ReachedQuota

_LISTED = 8
_RESOURCES = {"memory_bytes": "memory", "cpu_millis": "cpus"}


def pool_exhausted(capacity: UsageCounts, want: Want, bound: str) -> PoolExhausted:
    """Return the error of a request that waited in the queue until its deadline.

    `facts`: `bound` (mesh, node, ports, template, caller, starts or turn), `used` and `limit` of that bound,
    `templates` and `nodes` as "name=count, ...", and `next_expire`, where a lease runs.
    """
    used, limit, what = _bound(capacity, want, bound)
    facts = {
        "bound": bound,
        "used": str(used),
        "limit": str(limit),
        "templates": _listed(capacity.templates),
        "nodes": _listed(capacity.nodes),
    }
    hint = "release one, or try again later"
    if capacity.next_expire_us:
        facts["next_expire"] = timestamp(capacity.next_expire_us).ToJsonString()
        hint += f": the next lease ends at {facts['next_expire']}"
    message = f"all sandboxes that {what} may have are in use ({used} of {limit}; {facts['templates']}): {hint}"
    return PoolExhausted(message, facts, retry_after=1.0)


def quota_error(reached: ReachedQuota, want: Want) -> SandmeshError:
    """Return the error of a request that does not fit into a quota, or has no limit on what is counted."""
    if reached.kind == "mesh":
        return _cost_error(reached)
    amounts = {"memory_bytes": want.memory_bytes, "cpu_millis": want.cpu_millis}
    requested = amounts.get(reached.quota, 1)
    if requested:
        return reached.error(requested)
    owner = "project" if reached.kind == "project" else "user"
    limit = _RESOURCES[reached.quota]
    message = (
        f"the quota of the {owner} {reached.name} counts {limit}: request a sandbox with its own limit "
        f"(limits={{{limit!r}: ...}}), or give its template one"
    )
    return InvalidArgument(message, {"field": f"spec.limits.{reached.quota}"})


def _cost_error(reached: ReachedQuota) -> QuotaExceeded:
    used, limit = (f"{amount / NANO:.4g}" for amount in (reached.used, reached.limit))
    facts = {"quota": reached.quota, "of": "mesh", "name": "", "used": used, "requested": "", "limit": limit}
    message = (
        f"the sandboxes of the mesh cost {used} today, and may cost {limit} a day: wait until midnight in UTC, or "
        "raise SANDMESH_COST_PER_DAY; those that are there go on, and cost"
    )
    return QuotaExceeded(message, facts)


def _bound(capacity: UsageCounts, want: Want, bound: str) -> tuple[int, int, str]:
    if bound == "caller":
        return capacity.callers.get(want.caller, 0), want.caller_limit, f"the user {want.caller}"
    if bound == "template":
        used = capacity.templates.get(want.template, 0)
        return used, want.template_limit, f"the template {want.template}"
    if bound == "starts":
        most = want.batch.starts * len(want.nodes) if want.batch else 0
        return most, most, "batches while they start (SANDMESH_BATCH_STARTS on each node)"
    if bound == "ports":
        count = sum(node.last - node.first + 1 for node in want.nodes if node.last)
        return count, count, f"the ports of the nodes {', '.join(sorted(node.id for node in want.nodes))}"
    if bound == "node":
        limits = {node.id: node.limit for node in want.nodes}
        used = sum(capacity.nodes.get(name, 0) for name in limits)
        return used, sum(limits.values()), f"the nodes {', '.join(sorted(limits))}"
    return capacity.used, want.limit, "the mesh"


def _listed(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    entries = [f"{name}={count}" for name, count in most[:_LISTED]]
    return ", ".join(entries + (["..."] if len(most) > _LISTED else []))
