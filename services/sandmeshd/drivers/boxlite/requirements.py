"""What a spec requires, checked against what a box enforces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api import requirements
from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.egress import MODES
from sandmeshd.drivers.node.agent_config import USER_ID

NAME: Final = "boxlite"
OWN_MEBIBYTES: Final = 160
"""The memory of agent, zygote and the guest's kernel, in addition to the limit of user code."""

ABLE: Final = {
    "memory": "the virtual machine's size: what exceeds it may end the sandbox",
    "cpu": "the virtual machine's processors",
    "file": "rlimit",
}
NETWORK: Final = "BoxLite's proxy lets out nothing else"


def size_of(limits: sandbox_pb2.Limits, settings: BoxliteSettings) -> tuple[int, int]:
    """Return the processors and MiB of a box: what is stated, rounded up."""
    cpus = -(-limits.cpu_millis // 1000) or settings.cpus
    mebibytes = -(-limits.memory_bytes // (1 << 20))
    return cpus, mebibytes + OWN_MEBIBYTES if mebibytes else settings.memory


def capabilities() -> pb.Capabilities:
    """Return the driver's capabilities."""
    return pb.Capabilities(limits=ABLE, network_modes=MODES, separate_user=True, isolation="virtual machine")


def enforced(limits: sandbox_pb2.Limits, size: tuple[int, int]) -> dict[str, str]:
    """Return what enforces each limit and boundary of a sandbox, and the box's size as it was rounded."""
    values = requirements.limit_values(limits)
    found = {name: ABLE.get(name, "no") if value else "no" for name, value in values.items()}
    found["instance"] = f"{size[1]} MiB with the agent's, {size[0]} processors: limits are rounded up to it"
    boundaries = {"root": "the box's own disk", "capabilities": "none", "user": f"uid {USER_ID}"}
    return {**found, **boundaries, "system calls": "its own kernel, and sandmesh's filter"}


def check(request: pb.CreateSandboxRequest) -> None:
    """Check that all requirements can be enforced.

    Raises:
        CapabilityMissing: Some cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value is invalid, or memory is too small.
    """
    requirements.check(request, NAME, ABLE, {}, list(_unmet(request)))


def _unmet(request: pb.CreateSandboxRequest) -> Iterator[str]:
    if request.ports:
        yield "ports"
    if request.spec.workspace_dir:
        yield "workspace_dir (a box does not see this machine's files)"
    if request.spec.volumes:
        yield "volumes (a box does not see this machine's files)"
    if request.spec.snapshot_id:
        yield "snapshot"
