"""The operator's warm pools and templates, checked before the first claim: a pod of theirs must be able to be born."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.agentlink.birth import load_mesh_identity
from sandmeshd.drivers.kubernetes.agent_sandbox.claims import VERSION
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.mesh_identity import MeshIdentity
from sandmeshd.drivers.kubernetes.pods.pod import AGENT_PORT, POSTURE, waiting_arguments
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings

BIRTH_SECONDS = 10 * 365 * 24 * 3600
"""How long a pod of a warm pool waits for its sandbox: longer than any does, since nothing says who replaces it."""


def arguments(pin: str) -> list[str]:
    """Return the arguments that a template's container must have to wait for the mesh with a certificate."""
    return waiting_arguments(pin, BIRTH_SECONDS, shut=True)


async def open_pools(settings: KubernetesSettings, cluster: Cluster) -> MeshIdentity:
    """Return what shows the mesh to agents in warm pools.

    Raises:
        RuntimeUnavailable: The certificate cannot be read, or as `check_pools`.
    """
    path = settings.birth_identity or Path()
    try:
        identity = await asyncio.to_thread(load_mesh_identity, path)
        pin = certificate_pin(path.read_text())
    except (OSError, ValueError) as error:
        fix = "name a file with a certificate and its key in SANDMESH_KUBERNETES_BIRTH_IDENTITY"
        message = f"the mesh's certificate for warm pools cannot be read ({error}): {fix}"
        raise RuntimeUnavailable(message, {"fix": fix}) from None
    await check_pools(cluster, settings.warm_pools, pin)
    return MeshIdentity(identity, pin)


def certificate_pin(pem: str) -> str:
    """Return the SHA-256 of the first certificate in a text."""
    begin, end = ssl.PEM_HEADER, ssl.PEM_FOOTER
    certificate = pem[pem.index(begin) : pem.index(end) + len(end)]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(f"{certificate}\n")).hexdigest()


async def check_pools(cluster: Cluster, pools: Mapping[str, str], pin: str) -> None:
    """Check that the warm pools exist, and that their templates' pods wait for this mesh and let nothing out.

    Raises:
        RuntimeUnavailable: Something is missing, or the template's pods would not fit; `facts["fix"]` says what to do.
    """
    for pool in sorted(set(pools.values())):
        found = await _find(cluster, "sandboxwarmpools", pool)
        name = str(found["spec"]["sandboxTemplateRef"]["name"])
        template = await _find(cluster, "sandboxtemplates", name)
        problem = _problem(template["spec"], pin)
        if problem:
            raise RuntimeUnavailable(
                f"pods of the SandboxTemplate {name} cannot be sandboxes of this mesh: {problem}", {"fix": problem}
            )


async def _find(cluster: Cluster, plural: str, name: str) -> Mapping[str, Any]:
    found = await cluster.find(cluster.path(plural, name, f"/apis/{VERSION}"))
    if found is None:
        fix = "create it, or correct SANDMESH_KUBERNETES_WARM_POOLS; agent-sandbox must serve v1beta1"
        raise RuntimeUnavailable(f"there is no {plural} {name} in {cluster.namespace}: {fix}", {"fix": fix})
    return found


def _problem(spec: Mapping[str, Any], pin: str) -> str:
    pod: Mapping[str, Any] = spec["podTemplate"]["spec"]
    container: Mapping[str, Any] = pod["containers"][0]
    # Restarting an agent leaves one that waits, in place of the sandbox.
    for name, value in {"restartPolicy": "Never", "automountServiceAccountToken": False}.items():
        if pod.get(name) != value:
            return f"set its pods' {name} to {json.dumps(value)}"
    for name, value in {"args": arguments(pin), "securityContext": POSTURE}.items():
        if container.get(name) != value:
            return f"set the {name} of its first container to {json.dumps(value)}"
    # The controller's own policy lets user code out to public addresses, and shuts out gateways.
    policy: Mapping[str, Any] = spec.get("networkPolicy") or {}
    if spec.get("networkPolicyManagement") != "Unmanaged" and policy.get("egress") != []:
        return f"set networkPolicy to egress: [] and ingress from gateways and driver at port {AGENT_PORT}"
    return ""
