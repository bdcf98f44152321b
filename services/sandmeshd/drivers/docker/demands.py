"""What a spec states, checked against what this engine can enforce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers import demands
from sandmeshd.drivers.birth import PROCESSES, USER_ID
from sandmeshd.drivers.egress import MODES

NAME = "docker"
OWN_TASKS = 6
"""What agent and zygote have of them, beside what was stated."""

FLAGS = {"memory": ("MemoryLimit",), "cpu": ("CpuCfsQuota", "CpuCfsPeriod"), "pids": ("PidsLimit",)}
"""What an engine says of itself, by the limit that needs it."""


def enforceable(info: Mapping[str, Any]) -> dict[str, str]:
    """Give the limits that an engine can enforce, and how."""
    groups = f"docker, cgroup v{info.get('CgroupVersion', '1')}"
    by_engine = {name: groups for name, flags in FLAGS.items() if all(info.get(flag) for flag in flags)}
    return {"file": "rlimit", "disk": "tmpfs", **by_engine}


def capabilities(limits: Mapping[str, str]) -> pb.Capabilities:
    """Give what can be enforced and done."""
    return pb.Capabilities(
        limits=limits,
        network_modes=MODES,
        pause=True,
        snapshot=True,
        separate_user=True,
        isolation="namespaces",
    )


def enforced(limits: sandbox_pb2.Limits, able: Mapping[str, str]) -> dict[str, str]:
    """Say which limits and boundaries hold in a sandbox, and how; "no" where one does not."""
    held = {name: able.get(name, "no") if value else "no" for name, value in demands.stated(limits).items()}
    pids = able.get("pids", "no")
    walls = {"root": "read-only", "capabilities": "none", "system calls": "docker's seccomp, and sandmesh's on top"}
    return {**held, "pids": pids, **walls, "user": f"uid {USER_ID}"}


def tasks(limits: sandbox_pb2.Limits) -> int:
    """Give the processes and threads that a container may have in all."""
    return (limits.pids or PROCESSES) + OWN_TASKS


def check(request: pb.CreateSandboxRequest, able: Mapping[str, str]) -> None:
    """Check that all that is stated can be enforced, where the engine enforces `able`.

    Raises:
        CapabilityMissing: Something cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value cannot be one, or memory is too small.
    """
    demands.check(request, NAME, able, {"disk": demands.half_of_memory()})
