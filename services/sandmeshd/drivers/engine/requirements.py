"""What a spec states, checked against what this engine can enforce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.api import requirements as demands
from sandmeshd.drivers.egress import MODES
from sandmeshd.drivers.engine.links import Link
from sandmeshd.drivers.engine.runtimes import Kind
from sandmeshd.drivers.node.agent_config import PROCESSES, USER_ID

NONE = sandbox_pb2.NETWORK_MODE_NONE


def capabilities(kind: Kind, limits: Mapping[str, str], link: Link) -> pb.Capabilities:
    """Give what can be enforced and done."""
    return pb.Capabilities(
        limits=limits,
        # What is reached at a port has a network: that it has none is not promised.
        network_modes=[mode for mode in MODES if link.way != "port" or mode != NONE],
        pause=True,
        snapshot=True,
        workspace_dir=not link.remote,
        agent_port=link.way == "port",
        separate_user=True,
        isolation=kind.isolation,
    )


def enforced(kind: Kind, limits: sandbox_pb2.Limits, able: Mapping[str, str]) -> dict[str, str]:
    """Say which limits and boundaries hold in a sandbox, and how; "no" where one does not."""
    held = {name: able.get(name, "no") if value else "no" for name, value in demands.limit_values(limits).items()}
    pids = able.get("pids", "no")
    walls = {"root": "read-only", "capabilities": "none", "system calls": kind.system_calls}
    return {**held, "pids": pids, **walls, "user": f"uid {USER_ID}"}


def tasks(kind: Kind, limits: sandbox_pb2.Limits) -> int:
    """Give the processes and threads of the machine that a container may have in all."""
    return (limits.pids or PROCESSES) * kind.tasks + kind.own_tasks


def check(kind: Kind, request: pb.CreateSandboxRequest, able: Mapping[str, str], link: Link) -> None:
    """Check that all that is stated can be enforced, where the engine enforces `able`.

    Raises:
        CapabilityMissing: Something cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value cannot be one, memory is too small, or a port that the
            agent needs was not leased.
    """
    demands.check(request, kind.name, able, {"disk": demands.half_of_memory()}, list(_unmet(request, link)))
    if link.way == "port" and not all(link.first <= port <= link.last for port in request.ports):
        raise InvalidArgument(f"ports are those from {link.first} to {link.last}", {"field": "ports"})


def _unmet(request: pb.CreateSandboxRequest, link: Link) -> Iterator[str]:
    if len(request.ports) != (link.way == "port"):
        yield "ports (one is leased for each agent)" if link.way == "port" else "ports"
    if link.way == "port" and request.spec.network.mode == NONE:
        yield "network none (its agent is reached at a port of a network)"
    if link.remote and request.spec.workspace_dir:
        yield "workspace_dir (the engine does not see this machine's files)"
