"""What a namespace admits: asked by creates of a sandbox's pod that the API server only checks."""

from __future__ import annotations

from typing import Any

from sandmesh.errors import InvalidArgument, PoolExhausted, RuntimeUnavailable
from sandmeshd.drivers.kubernetes.cluster.requests import FORBIDDEN, Cluster

BASELINE_CAPABILITIES = ("KILL", "SETGID", "SETUID", "SETPCAP", "CHOWN")
FULL, BASELINE, RESTRICTED = "full", "baseline", "restricted"
"""The postures of a sandbox's pod: what the driver starts, that without NET_ADMIN, and that without any capability as
an ordinary user, as Pod Security's levels of these names admit them."""


async def check_admission(cluster: Cluster, pod: dict[str, Any]) -> None:
    """Check that the namespace admits the pods of sandboxes as they are, with all fields.

    Raises:
        RuntimeUnavailable: It does not; the message says what it admits, and why.
    """
    refusal = await _refusal(cluster, pod)
    if not refusal:
        return
    for posture in (BASELINE, RESTRICTED):
        if not await _refusal(cluster, in_posture(pod, posture)):
            admitted = f"it admits {posture} ones, in which user code would have the pod's network"
            break
    else:
        admitted = "it admits none, in whatever posture"
    fix = (
        f"kubectl label namespace {cluster.namespace} pod-security.kubernetes.io/enforce=privileged --overwrite, or "
        "set SANDMESH_KUBERNETES_NAMESPACE to a namespace that is the sandboxes' own"
    )
    message = f"the namespace {cluster.namespace} does not admit the pods of sandboxes ({refusal}); {admitted}"
    raise RuntimeUnavailable(f"{message}: {fix}", {"fix": fix})


def in_posture(pod: dict[str, Any], posture: str) -> dict[str, Any]:
    """Return a pod as it would be in a lower posture."""
    container: dict[str, Any] = dict(pod["spec"]["containers"][0])
    capabilities: dict[str, Any] = {"drop": ["ALL"], "add": list(BASELINE_CAPABILITIES)}
    context: dict[str, Any] = {**container["securityContext"], "capabilities": capabilities}
    if posture == RESTRICTED:
        del capabilities["add"]
        context |= {"runAsUser": 1000, "runAsNonRoot": True}
    container["securityContext"] = context
    return {**pod, "spec": {**pod["spec"], "containers": [container]}}


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
