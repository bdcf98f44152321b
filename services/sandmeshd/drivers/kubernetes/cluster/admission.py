"""What a namespace admits: asked by creates of a sandbox's pod that the API server only checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandmesh.errors import InvalidArgument, PoolExhausted, RuntimeUnavailable
from sandmeshd.drivers.kubernetes.cluster.requests import FORBIDDEN, Cluster


async def check_admission(cluster: Cluster, pods: Mapping[str, dict[str, Any]], posture: str) -> None:
    """Check that the namespace admits the pods of sandboxes in a posture, with all fields.

    `pods` has one for each posture, the highest first.

    Raises:
        RuntimeUnavailable: It does not; the message says what it admits, and why.
    """
    refusal = await _refusal(cluster, pods[posture])
    if not refusal:
        return
    fix = (
        f"kubectl label namespace {cluster.namespace} pod-security.kubernetes.io/enforce=privileged --overwrite, or "
        "set SANDMESH_KUBERNETES_NAMESPACE to a namespace that is the sandboxes' own"
    )
    names = list(pods)
    for lower in names[names.index(posture) + 1 :]:
        if not await _refusal(cluster, pods[lower]):
            admitted = f"it admits {lower} ones, in which only a NetworkPolicy keeps user code from the network"
            fix = f"set SANDMESH_KUBERNETES_POSTURE={lower}, or {fix}"
            break
    else:
        admitted = "it admits none, in whatever lower posture"
    message = f"the namespace {cluster.namespace} does not admit the pods of sandboxes ({refusal}); {admitted}"
    raise RuntimeUnavailable(f"{message}: {fix}", {"fix": fix})


async def _refusal(cluster: Cluster, pod: dict[str, Any]) -> str:
    """Return why a pod is not admitted, empty if it is."""
    try:
        await cluster.create(f"{cluster.path('pods')}?dryRun=All", pod)
    except PoolExhausted:
        # Quotas are asked last.
        return ""
    except InvalidArgument as error:
        fix = "set SANDMESH_KUBERNETES_WORKSPACE=disk, or use a newer cluster"
        if "volumes" in error.message and any("ephemeral" in volume for volume in pod["spec"]["volumes"]):
            message = f"the API server knows no volumes that go with their pods ({error.message}): {fix}"
            raise RuntimeUnavailable(message, {"fix": fix}) from None
        raise
    except RuntimeUnavailable as error:
        if error.facts["fix"] != FORBIDDEN:
            raise
        return error.message.removesuffix(f": {FORBIDDEN}")
    return ""
