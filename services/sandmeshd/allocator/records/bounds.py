"""What a template bounds: limits that its sandboxes have and may lower, and a network that may not be widened."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.shared.hosts import normal_host

LIMITS = ("memory_bytes", "cpu_millis", "pids", "file_bytes", "disk_bytes")


def bounded(spec: pb.SandboxSpec, template: driver_pb2.TemplateInfo | None) -> pb.SandboxSpec:
    """Give the spec with the template's limits where it states none.

    Raises:
        InvalidArgument: It states more than the template allows.
    """
    if template is None:
        return spec
    _check_network(spec, template)
    result = pb.SandboxSpec()
    result.CopyFrom(spec)
    for name in LIMITS:
        most, stated = getattr(template.limits, name), getattr(spec.limits, name)
        if most and stated > most:
            message = f"spec.limits.{name} is at most {most} in the template {template.name!r}: state less or nothing"
            raise InvalidArgument(message, {"field": f"spec.limits.{name}", "most": str(most)})
        if most and not stated:
            setattr(result.limits, name, most)
    return result


def _check_network(spec: pb.SandboxSpec, template: driver_pb2.TemplateInfo) -> None:
    if not template.network_fixed or spec.network.mode in (pb.NETWORK_MODE_UNSPECIFIED, pb.NETWORK_MODE_NONE):
        return
    allowed, asked = template.network, spec.network
    listed = {normal_host(host) for host in allowed.hosts}
    more = asked.mode == pb.NETWORK_MODE_PUBLIC and allowed.mode != pb.NETWORK_MODE_PUBLIC
    if more or not {normal_host(host) for host in asked.hosts} <= listed:
        message = f"the template {template.name!r} has the security level high: its sandboxes reach what it names alone"
        raise InvalidArgument(message, {"field": "spec.network", "template": template.name})
