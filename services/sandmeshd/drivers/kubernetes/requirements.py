"""What a spec requires, checked against what a cluster enforces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api import requirements
from sandmeshd.drivers.egress import MODES
from sandmeshd.drivers.kubernetes.proofs import NOTHING, Proofs
from sandmeshd.drivers.node.agent_config import USER_ID

NAME = "kubernetes"
MEMORY_VOLUMES = (1, 22)
"""The version from which a kubelet gives a volume in memory its size."""


def enforceable(version: tuple[int, int], workspace: str, proofs: Proofs = NOTHING) -> dict[str, str]:
    """Return the limits that a cluster enforces, and how; `workspace` is the setting of that name, or "pool"."""
    if workspace == "pool":
        # The rest is the operator's template's.
        return {"file": "rlimit"}
    limits = {"memory": "the pod's limit: what exceeds it may end the sandbox", "cpu": "the pod's limit"}
    if proofs.single_process_oom is not None:
        limits["memory"] = (
            f"the pod's limit, which ends the process that exceeds it ({proofs.single_process_oom.value})"
        )
    limits["file"] = "rlimit"
    if proofs.user_namespaces is not None:
        # Elsewhere the kernel counts a uid's processes over all pods of a machine.
        limits["pids"] = f"rlimit in a separate user namespace ({proofs.user_namespaces.value})"
    if workspace == "volume":
        return {**limits, "disk": "a separate volume"}
    # Older kubelets take a size for a wish: the volume is as large as the memory.
    return {**limits, "disk": "a volume in memory"} if version >= MEMORY_VOLUMES else limits


def capabilities(
    able: Mapping[str, str],
    posture: str = "full",
    isolation: str = "namespaces",
    *,
    images: bool = False,
    root: bool = False,
) -> pb.Capabilities:
    """Return the driver's capabilities."""
    separate = posture != "restricted"
    return pb.Capabilities(
        limits=able, network_modes=MODES, separate_user=separate, isolation=isolation, images=images, root=root
    )


def enforced(limits: sandbox_pb2.Limits, able: Mapping[str, str], posture: str) -> dict[str, str]:
    """Return what enforces each limit and boundary of a sandbox; "no" if nothing does."""
    values = requirements.limit_values(limits)
    enforcers = {name: able.get(name, "no") if value else "no" for name, value in values.items()}
    filters = "the runtime's seccomp, and sandmesh's on top"
    user = f"uid {USER_ID}, as its agent" if posture == "restricted" else f"uid {USER_ID}"
    boundaries = {"root": "read-only", "capabilities": "none", "system calls": filters, "user": user}
    return {**enforcers, **boundaries}


def check(request: pb.CreateSandboxRequest, able: Mapping[str, str], *, on_volumes: bool) -> None:
    """Check that all requirements can be enforced.

    Raises:
        CapabilityMissing: Some cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value is invalid, or memory is too small.
    """
    requirements.check(
        request,
        NAME,
        {**able, **requirements.ROOTS},
        {},
        list(_unmet(request)),
        workspace_in_memory=not on_volumes,
    )


def _unmet(request: pb.CreateSandboxRequest) -> Iterator[str]:
    if request.ports:
        yield "ports"
    if request.spec.workspace_dir:
        yield "workspace_dir (a cluster does not see this machine's files)"
    if request.spec.volumes:
        yield "volumes (a cluster does not see this machine's files)"
    if request.spec.snapshot_id:
        yield "snapshot"
