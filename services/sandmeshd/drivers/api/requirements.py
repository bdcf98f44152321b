"""What a spec states, checked against what a driver can enforce; what it cannot is refused by name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

ROOTS: Mapping[str, str] = {"image": "by the driver", "root": "by the driver"}
"""What a driver adds to what it is able to do if it checks itself what an image and root inside require."""

SMALLEST_MEMORY = 32 << 20
"""Less does not hold a kernel of Python."""


def check_id(sandbox_id: str) -> None:
    """Check an id.

    Raises:
        InvalidArgument: It is not made of 1 to 128 letters, digits, `_`, `.` and `-`.
    """
    if not _ID.fullmatch(sandbox_id):
        message = f"{sandbox_id!r} is not a sandbox id: 1 to 128 letters, digits, _, . and -, no sign first"
        raise InvalidArgument(message, {"field": "sandbox_id"})


def limit_values(limits: sandbox_pb2.Limits) -> dict[str, int]:
    """Return the limits by the names in capabilities."""
    return {
        "memory": limits.memory_bytes,
        "cpu": limits.cpu_millis,
        "pids": limits.pids,
        "file": limits.file_bytes,
        "disk": limits.disk_bytes,
    }


def in_memory(limits: sandbox_pb2.Limits) -> tuple[int, int]:
    """Return the size of the workspace, and of each of /tmp, /dev/shm and the home: 0 where it is not limited.

    All of them full leave a quarter of the memory to processes.
    """
    memory, disk = limits.memory_bytes, limits.disk_bytes
    return disk, memory // 4 - disk // 3 if memory else 0


def half_of_memory() -> int:
    """Return half of the machine's memory in bytes: the most that a workspace in memory is promised."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def check(
    request: pb.CreateSandboxRequest,
    driver: str,
    able: Mapping[str, str],
    most: Mapping[str, int],
    unmet: Sequence[str] = (),
    *,
    workspace_in_memory: bool = True,
) -> None:
    """Check that all that is stated can be enforced: the limits of `able`, up to `most` where that has them.

    `unmet` are needs of which the driver knows by itself that it does not meet them.

    Raises:
        CapabilityMissing: Something cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value cannot be one, or memory is too small.
    """
    needs = list(dict.fromkeys([*_unmet(request, able, most), *unmet]))
    if needs:
        listed = ", ".join(needs)
        message = f"the {driver} driver cannot give or enforce: {listed}; drop it or choose another driver"
        raise CapabilityMissing(message, {"needs": listed})
    for name, value in request.spec.environment.items():
        if not name or "=" in name or "\0" in name + value:
            field = f"spec.environment[{name!r}]"
            raise InvalidArgument(f"{field} is not an environment variable", {"field": field})
    _check_memory(request.spec.limits, workspace_in_memory=workspace_in_memory)


def _unmet(request: pb.CreateSandboxRequest, able: Mapping[str, str], most: Mapping[str, int]) -> list[str]:
    limits = limit_values(request.spec.limits)
    needs = [name for name, value in limits.items() if value and name not in able]
    needs += [name for name in ROOTS if getattr(request.spec, name) and name not in able]
    needs += [f"{name} (at most {value} here)" for name, value in most.items() if limits[name] > value]
    if request.spec.port_count:
        needs.append("ports")
    return needs


def _check_memory(limits: sandbox_pb2.Limits, *, workspace_in_memory: bool) -> None:
    if 0 < limits.memory_bytes < SMALLEST_MEMORY:
        field = "spec.limits.memory_bytes"
        raise InvalidArgument(f"{field} is at least {SMALLEST_MEMORY}: Python needs that much", {"field": field})
    if workspace_in_memory and 0 < limits.memory_bytes < 2 * limits.disk_bytes:
        field = "spec.limits.disk_bytes"
        why = "the workspace is in memory then, and processes need the rest"
        raise InvalidArgument(f"{field} is at most half of memory_bytes: {why}", {"field": field})
