"""The one NetworkPolicy of a mesh: its pods are reached at the agent's port, and reach nothing."""

from __future__ import annotations

from sandmeshd.drivers.kubernetes.cluster.requests import CONFLICT, ApiRefusal, Cluster
from sandmeshd.drivers.kubernetes.names import mesh_labels, policy_name
from sandmeshd.drivers.kubernetes.pods.pod import AGENT_PORT

API = "/apis/networking.k8s.io/v1"


async def apply_policy(cluster: Cluster, mesh_id: str) -> None:
    """Create the mesh's policy unless it exists.

    Raises:
        RuntimeUnavailable: The namespace does not exist, or the driver may not.
    """
    labels = mesh_labels(mesh_id)
    port = {"protocol": "TCP", "port": AGENT_PORT}
    spec = {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [port]}],
        "egress": list[object](),
    }
    described = {"name": policy_name(mesh_id), "labels": labels}
    body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": described, "spec": spec}
    try:
        await cluster.create(cluster.path("networkpolicies", api=API), body)
    except ApiRefusal as refusal:
        if refusal.status != CONFLICT:
            raise


async def remove_policy(cluster: Cluster, mesh_id: str) -> None:
    """Remove the mesh's policy, if it exists."""
    await cluster.delete(cluster.path("networkpolicies", policy_name(mesh_id), API))
