"""Claims of agent-sandbox: what the driver writes, and what their conditions mean.

Names and reasons are those of extensions.agents.x-k8s.io/v1beta1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.kubernetes.kinds import ResourceKind, kept_metadata
from sandmeshd.drivers.kubernetes.names import metadata

VERSION: Final = "extensions.agents.x-k8s.io/v1beta1"
FINAL: Final = {
    *("InvalidMetadata", "EnvVarsInjectionRejected", "VolumeClaimTemplatesError", "ClaimExpired", "SandboxExpired"),
    *("InvalidConfiguration", "PodFailed", "PodSucceeded", "SandboxSuspended"),
}
"""Reasons that no waiting ends; a Sandbox that is suspended has lost its pod, and all processes with it."""

MISTAKES: Final = {"TemplateNotFound", "WarmPoolNotFound"}
"""Reasons that the operator has to mend."""


def claim(mesh_id: str, sandbox: pb.RuntimeSandbox, pool: str) -> dict[str, Any]:
    """Return the claim of a sandbox on a warm pool.

    It has neither variables nor volumes, for which the controller would restart a pod: the agent gets its
    configuration at its birth.
    """
    spec = {"warmPoolRef": {"name": pool}, "lifecycle": {"shutdownPolicy": "DeleteForeground"}}
    described = metadata(mesh_id, sandbox.sandbox_id, sandbox.spec.template)
    return {"apiVersion": VERSION, "kind": "SandboxClaim", "metadata": described, "spec": spec}


def as_pod(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a claim says of its pod, as that pod would say it."""
    status: Mapping[str, Any] = found.get("status") or {}
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    sandbox: Mapping[str, Any] = status.get("sandbox") or {}
    addresses: Sequence[str] = sandbox.get("podIPs") or ()
    meant: dict[str, Any] = {"podName": str(sandbox.get("name") or "")}
    ready = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
    finished = any(
        condition.get("type") == "Finished" and condition.get("status") == "True" for condition in conditions
    )
    reason, message = ((ready or {}).get(name) or "" for name in ("reason", "message"))
    if finished or reason in FINAL | MISTAKES:
        meant |= {"phase": "Failed", "reason": reason or "Finished", "message": message}
    elif ready is not None and ready.get("status") == "True" and addresses:
        meant |= {"phase": "Running", "podIP": addresses[0]}
    elif ready is not None:
        waits = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        meant |= {"phase": "Pending", "conditions": [waits]}
    return {"metadata": kept_metadata(found), "status": meant}


CLAIMS: Final = ResourceKind("sandboxclaims", "SandboxClaim", VERSION, as_pod, "Foreground")
