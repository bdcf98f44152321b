"""What a spec requires, checked against what rented instances enforce, and rounded to the sizes that they have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api import requirements
from sandmeshd.drivers.clouds.settings import CloudSettings
from sandmeshd.drivers.egress import MODES
from sandmeshd.drivers.node.agent_config import USER_ID

AGENT_BYTES = 96 << 20
"""The memory of agent and zygote, in addition to the limit of user code."""

ABLE: Final = {
    "memory": "the instance's size: what exceeds it ends the sandbox",
    "cpu": "the instance's share",
    "file": "rlimit",
}
MOST: Final = {"memory": (32 << 30) - AGENT_BYTES, "cpu": 16_000}
_MEMORY_STEP, _LEAST_MEMORY, _MOST_MEMORY = 64, 128, 32_768
_CPU_STEP, _LEAST_CPU, _MOST_CPU = 50, 50, 16_000
_LEAST_RATIO, _MOST_RATIO = 1024, 4096
"""MiB a processor."""


@dataclass(frozen=True)
class InstanceSize:
    """The size of an instance."""

    millis: int
    mebibytes: int

    @property
    def cpu(self) -> float:
        """The processors."""
        return self.millis / 1000


def size_of(limits: sandbox_pb2.Limits, settings: CloudSettings) -> InstanceSize:
    """Return the smallest size that has room for limits; the vendor's steps, bounds and ratio round up."""
    wanted = -(-(limits.memory_bytes + AGENT_BYTES) >> 20) if limits.memory_bytes else settings.memory
    mebibytes = _rounded(wanted, _MEMORY_STEP, _LEAST_MEMORY)
    millis = _rounded(limits.cpu_millis or round(settings.cpu * 1000), _CPU_STEP, _LEAST_CPU)
    mebibytes = max(mebibytes, _rounded(-(-millis * _LEAST_RATIO // 1000), _MEMORY_STEP, _LEAST_MEMORY))
    millis = max(millis, _rounded(-(-mebibytes * 1000 // _MOST_RATIO), _CPU_STEP, _LEAST_CPU))
    return InstanceSize(min(millis, _MOST_CPU), min(mebibytes, _MOST_MEMORY))


def nano_price(limits: sandbox_pb2.Limits, settings: CloudSettings) -> int:
    """Return what a second of an instance with room for limits costs, in thousand-millionths of the prices' unit."""
    size = size_of(limits, settings)
    hour = size.cpu * settings.cpu_price + size.mebibytes / 1024 * settings.memory_price
    return round(hour / 3600 * 1e9)


def _rounded(value: int, step: int, least: int) -> int:
    return max(-(-value // step) * step, least)


def capabilities() -> pb.Capabilities:
    """Return the driver's capabilities."""
    return pb.Capabilities(limits=ABLE, network_modes=MODES, separate_user=True, isolation="the vendor's instance")


def enforced(limits: sandbox_pb2.Limits, settings: CloudSettings) -> dict[str, str]:
    """Return what enforces each limit and boundary of a sandbox, and the instance's size as it was rounded."""
    size = size_of(limits, settings)
    values = requirements.limit_values(limits)
    found = {name: ABLE.get(name, "no") if value else "no" for name, value in values.items()}
    found["instance"] = f"{size.mebibytes} MiB with the agent's, {size.cpu:g} processors: limits are rounded up to it"
    boundaries = {"root": "the instance's own", "capabilities": "none", "user": f"uid {USER_ID}"}
    return {**found, **boundaries, "system calls": "the vendor's, and sandmesh's filter on top"}


def check(request: pb.CreateSandboxRequest, driver: str) -> None:
    """Check that all requirements can be enforced.

    Raises:
        CapabilityMissing: Some cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value is invalid, or memory is too small.
    """
    requirements.check(request, driver, ABLE, MOST, list(_unmet(request)))


def _unmet(request: pb.CreateSandboxRequest) -> Iterator[str]:
    if request.ports:
        yield "ports"
    if request.spec.workspace_dir:
        yield "workspace_dir (a cloud does not see this machine's files)"
    if request.spec.volumes:
        yield "volumes (a cloud does not see this machine's files)"
    if request.spec.snapshot_id:
        yield "snapshot"
