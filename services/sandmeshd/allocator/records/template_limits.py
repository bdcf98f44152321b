"""What a template limits: resources, which its sandboxes may lower, and a network, which they may not widen."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.shared.hosts import normal_host

LIMITS = ("memory_bytes", "cpu_millis", "pids", "file_bytes", "disk_bytes")


def apply_template_limits(spec: pb.SandboxSpec, template: driver_pb2.TemplateInfo | None) -> pb.SandboxSpec:
    """Return the spec with the template's limits where it has none.

    Raises:
        InvalidArgument: It requests more than the template allows.
    """
    if template is None:
        return spec
    _check_network(spec, template)
    result = pb.SandboxSpec()
    result.CopyFrom(spec)
    for name in LIMITS:
        most, requested = getattr(template.limits, name), getattr(spec.limits, name)
        if most and requested > most:
            message = (
                f"spec.limits.{name} must be at most {most} in the template {template.name!r}: request less, or omit it"
            )
            raise InvalidArgument(message, {"field": f"spec.limits.{name}", "most": str(most)})
        if most and not requested:
            setattr(result.limits, name, most)
    return result


def _check_network(spec: pb.SandboxSpec, template: driver_pb2.TemplateInfo) -> None:
    if not template.network_fixed or spec.network.mode in (pb.NETWORK_MODE_UNSPECIFIED, pb.NETWORK_MODE_NONE):
        return
    allowed, requested = template.network, spec.network
    allowed_hosts = {normal_host(host) for host in allowed.hosts}
    wider = requested.mode == pb.NETWORK_MODE_PUBLIC and allowed.mode != pb.NETWORK_MODE_PUBLIC
    if wider or not {normal_host(host) for host in requested.hosts} <= allowed_hosts:
        message = f"the template {template.name!r} has the security level high: its sandboxes reach only what it names"
        raise InvalidArgument(message, {"field": "spec.network", "template": template.name})
