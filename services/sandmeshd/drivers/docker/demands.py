"""What a spec states, checked against what this engine can enforce."""

from __future__ import annotations

from collections.abc import Mapping

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers import demands
from sandmeshd.drivers.birth import PROCESSES, USER_ID
from sandmeshd.drivers.docker.kinds import Kind
from sandmeshd.drivers.egress import MODES


def capabilities(kind: Kind, limits: Mapping[str, str]) -> pb.Capabilities:
    """Give what can be enforced and done."""
    return pb.Capabilities(
        limits=limits,
        network_modes=MODES,
        pause=True,
        snapshot=True,
        workspace_dir=True,
        separate_user=True,
        isolation=kind.isolation,
    )


def enforced(kind: Kind, limits: sandbox_pb2.Limits, able: Mapping[str, str]) -> dict[str, str]:
    """Say which limits and boundaries hold in a sandbox, and how; "no" where one does not."""
    held = {name: able.get(name, "no") if value else "no" for name, value in demands.stated(limits).items()}
    pids = able.get("pids", "no")
    walls = {"root": "read-only", "capabilities": "none", "system calls": kind.system_calls}
    return {**held, "pids": pids, **walls, "user": f"uid {USER_ID}"}


def tasks(kind: Kind, limits: sandbox_pb2.Limits) -> int:
    """Give the processes and threads of the machine that a container may have in all."""
    return (limits.pids or PROCESSES) * kind.tasks + kind.own_tasks


def check(kind: Kind, request: pb.CreateSandboxRequest, able: Mapping[str, str]) -> None:
    """Check that all that is stated can be enforced, where the engine enforces `able`.

    Raises:
        CapabilityMissing: Something cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value cannot be one, or memory is too small.
    """
    demands.check(request, kind.name, able, {"disk": demands.half_of_memory()})
