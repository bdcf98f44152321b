"""What a spec states, checked against what this engine can enforce."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument
from sandmeshd.drivers.egress import MODES

SMALLEST_MEMORY = 32 << 20
PROCESSES = 512
"""The processes and threads of a sandbox that does not state how many."""

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
    return pb.Capabilities(limits=limits, network_modes=MODES, pause=True, separate_user=True, isolation="namespaces")


def enforced(limits: sandbox_pb2.Limits, able: Mapping[str, str]) -> dict[str, str]:
    """Say which limits and boundaries hold in a sandbox, and how; "no" where one does not."""
    held = {name: able.get(name, "no") if value else "no" for name, value in stated(limits).items()}
    pids = able.get("pids", "no")
    walls = {"root": "read-only", "capabilities": "none", "system calls": "docker's seccomp, and sandmesh's on top"}
    return {**held, "pids": pids, **walls, "user": "uid 1000"}


def stated(limits: sandbox_pb2.Limits) -> dict[str, int]:
    """Give limits by the names that capabilities report."""
    return {
        "memory": limits.memory_bytes,
        "cpu": limits.cpu_millis,
        "pids": limits.pids,
        "file": limits.file_bytes,
        "disk": limits.disk_bytes,
    }


def in_memory(limits: sandbox_pb2.Limits) -> tuple[int, int]:
    """Give the size of the workspace, and of each of /tmp, /dev/shm and the home: 0 where the limits do not tell.

    All of them full leave a quarter of the memory to processes.
    """
    memory, disk = limits.memory_bytes, limits.disk_bytes
    return disk, memory // 4 - disk // 3 if memory else 0


def tasks(limits: sandbox_pb2.Limits) -> int:
    """Give the processes and threads that a container may have in all."""
    return (limits.pids or PROCESSES) + OWN_TASKS


def check(request: pb.CreateSandboxRequest, able: Mapping[str, str]) -> None:
    """Check that all that is stated can be enforced, where the engine enforces `able`.

    Raises:
        CapabilityMissing: Something cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value cannot be one, or memory is too small.
    """
    needs = _unmet(request, able)
    if needs:
        listed = ", ".join(needs)
        message = f"the docker driver cannot give or enforce: {listed}; drop it or choose another driver"
        raise CapabilityMissing(message, {"needs": listed})
    for name, value in request.spec.environment.items():
        if not name or "=" in name or "\0" in name + value:
            field = f"spec.environment[{name!r}]"
            raise InvalidArgument(f"{field} is no environment variable", {"field": field})
    _check_memory(request.spec.limits)


def _check_memory(limits: sandbox_pb2.Limits) -> None:
    if 0 < limits.memory_bytes < SMALLEST_MEMORY:
        field = "spec.limits.memory_bytes"
        raise InvalidArgument(f"{field} is at least {SMALLEST_MEMORY}: Python needs that much", {"field": field})
    if 0 < limits.memory_bytes < 2 * limits.disk_bytes:
        field = "spec.limits.disk_bytes"
        why = "the workspace is in memory then, and processes need the rest"
        raise InvalidArgument(f"{field} is at most half of memory_bytes: {why}", {"field": field})


def _unmet(request: pb.CreateSandboxRequest, able: Mapping[str, str]) -> list[str]:
    asked = stated(request.spec.limits)
    needs = [name for name, value in asked.items() if value and name not in able]
    half_of_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    if asked["disk"] > half_of_memory:
        needs.append(f"disk (at most {half_of_memory} here)")
    if request.spec.port_count or request.ports:
        needs.append("ports")
    return needs
