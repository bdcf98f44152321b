"""What a spec requires, checked against what the engine can enforce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ByteSize

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.api import requirements
from sandmeshd.drivers.egress import MODES
from sandmeshd.drivers.engine.reach.links import AgentAccess
from sandmeshd.drivers.engine.runtimes import FLAGS, RuntimeProfile
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.agent_config import PROCESSES, USER_ID

NONE = sandbox_pb2.NETWORK_MODE_NONE


def capabilities(
    profile: RuntimeProfile,
    limits: Mapping[str, str],
    link: AgentAccess,
    *,
    volumes: bool = True,
    images: bool = True,
    root: bool = True,
) -> pb.Capabilities:
    """Return the driver's capabilities."""
    return pb.Capabilities(
        limits=limits,
        # A sandbox that is reached at a port has a network, so that "none" cannot be enforced.
        network_modes=[mode for mode in MODES if link.mode != "port" or mode != NONE],
        pause=True,
        snapshot=True,
        workspace_dir=not link.remote,
        volumes=volumes and not link.remote,
        agent_port=link.mode == "port",
        separate_user=True,
        isolation=profile.isolation,
        images=images and not link.remote,
        root=root and not link.remote,
    )


def enforced(settings: DockerSettings, limits: sandbox_pb2.Limits, enforceable: Mapping[str, str]) -> dict[str, str]:
    """Return what enforces each limit and boundary of a sandbox; "no" if nothing does."""
    profile = settings.profile
    enforcers = {
        name: enforceable.get(name, "no") if value else "no"
        for name, value in requirements.limit_values(limits).items()
    }
    if settings.default_memory and not limits.memory_bytes:
        enforcers["memory"] = f"docker, cgroup: {settings.default_memory.human_readable()} by default"
    pids = enforceable.get("pids", "no")
    boundaries = {"root": "read-only", "capabilities": "none", "system calls": profile.system_calls}
    return {**enforcers, "pids": pids, **boundaries, "user": f"uid {USER_ID}"}


def default_memory(settings: DockerSettings, info: Mapping[str, Any]) -> ByteSize:
    """Return the memory of a sandbox that states no limit, by an engine's description of itself; 0 for no bound."""
    if not all(info.get(flag) for flag in FLAGS["memory"]):
        return ByteSize(0)
    half = int(info.get("MemTotal") or 0) // 2
    return ByteSize(min(settings.default_memory, half or settings.default_memory))


def tasks(profile: RuntimeProfile, limits: sandbox_pb2.Limits) -> int:
    """Return the most processes and threads of the machine that a container may have."""
    return (limits.pids or PROCESSES) * profile.tasks + profile.own_tasks


def check(
    profile: RuntimeProfile, request: pb.CreateSandboxRequest, enforceable: Mapping[str, str], link: AgentAccess
) -> None:
    """Check that all requirements can be enforced by an engine that enforces `enforceable`.

    Raises:
        CapabilityMissing: Some cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value is invalid, memory is too small, or a leased port is
            out of range.
    """
    able = {**enforceable, **requirements.ROOTS}
    requirements.check(
        request, profile.name, able, {"disk": requirements.half_of_memory()}, list(_unmet(request, link))
    )
    if link.mode == "port" and not all(link.first <= port <= link.last for port in request.ports):
        raise InvalidArgument(f"ports must be from {link.first} to {link.last}", {"field": "ports"})


def _unmet(request: pb.CreateSandboxRequest, link: AgentAccess) -> Iterator[str]:
    if len(request.ports) != (link.mode == "port"):
        yield "ports (one is leased for each agent)" if link.mode == "port" else "ports"
    if link.mode == "port" and request.spec.network.mode == NONE:
        yield "network none (its agent is reached at a port of a network)"
    if link.remote and request.spec.workspace_dir:
        yield "workspace_dir (the engine does not see this machine's files)"
    if link.remote and request.spec.volumes:
        yield "volumes (the engine does not see this machine's files)"
