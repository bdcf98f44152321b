"""What a spec states, checked against what this driver can enforce."""

from __future__ import annotations

from collections.abc import Mapping

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, TemplateNotFound
from sandmeshd.templates import Template

CAPABILITIES = pb.Capabilities(
    limits={"pids": "rlimit", "file": "rlimit"},
    network_modes=[sandbox_pb2.NETWORK_MODE_NONE],
    isolation="namespaces",
)

_GRANTED = (sandbox_pb2.NETWORK_MODE_UNSPECIFIED, sandbox_pb2.NETWORK_MODE_NONE)


def enforced(host_uid: int) -> dict[str, str]:
    """Say which limits and boundaries hold in every sandbox, and how."""
    no, ours = "no", "rlimit"
    limits = {"memory": no, "cpu": no, "disk": no, "pids": ours, "file": ours}
    return {**limits, "network": "none: own namespace", "system calls": "seccomp", "host_uid": str(host_uid)}


def template_of(templates: Mapping[str, Template], name: str) -> Template:
    """Give a template by name.

    Raises:
        TemplateNotFound: There is none; `facts["known"]` lists those there are.
    """
    if name not in templates:
        known = ", ".join(templates)
        raise TemplateNotFound(f"there is no template {name!r}: choose one of {known}", {"known": known})
    return templates[name]


def check(request: pb.CreateSandboxRequest) -> None:
    """Check that all that is stated can be enforced.

    Raises:
        CapabilityMissing: Something cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value cannot be one.
    """
    needs = _unmet(request)
    if needs:
        listed = ", ".join(needs)
        message = f"the bubblewrap driver cannot give or enforce: {listed}; drop it or choose another driver"
        raise CapabilityMissing(message, {"needs": listed})
    for name, value in request.spec.environment.items():
        if not name or "=" in name or "\0" in name + value:
            field = f"spec.environment[{name!r}]"
            raise InvalidArgument(f"{field} is no environment variable", {"field": field})


def _unmet(request: pb.CreateSandboxRequest) -> list[str]:
    limits, network = request.spec.limits, request.spec.network
    stated = {"memory": limits.memory_bytes, "cpu": limits.cpu_millis, "disk": limits.disk_bytes}
    needs = [name for name, value in stated.items() if value]
    if network.mode not in _GRANTED or network.hosts:
        needs.append("network")
    if request.spec.port_count or request.ports:
        needs.append("ports")
    return needs
