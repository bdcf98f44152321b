"""The names and labels of a sandbox's pod and Secret: hashes, since ids may be longer and wider than those may be."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Mapping
from typing import Any

MESH, SANDBOX, TEMPLATE, SANDBOX_ID, MESH_ID = (
    f"dev.sandmesh.{name}" for name in ("mesh", "sandbox", "template", "sandbox-id", "mesh-id")
)
"""Labels, whose values are hashes but for the template's; and annotations with the ids themselves."""


def hashed(text: str) -> str:
    """Return 26 letters and digits that stand for a text."""
    return b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()[:26]


def object_name(mesh_id: str, sandbox_id: str) -> str:
    """Return the name of a sandbox's pod and Secret."""
    return f"sm-{hashed(f'{mesh_id}/{sandbox_id}')}"


def policy_name(mesh_id: str) -> str:
    """Return the name of a mesh's NetworkPolicy."""
    return f"sm-{hashed(mesh_id)}"


def mesh_labels(mesh_id: str) -> dict[str, str]:
    """Return the labels of everything of a mesh."""
    return {MESH: hashed(mesh_id), "app.kubernetes.io/managed-by": "sandmesh"}


def selector(mesh_id: str) -> str:
    """Return what selects everything of a mesh."""
    return f"{MESH}={hashed(mesh_id)}"


def metadata(mesh_id: str, sandbox_id: str, template: str) -> dict[str, object]:
    """Return the metadata that a sandbox's pod and Secret share."""
    return {
        "name": object_name(mesh_id, sandbox_id),
        "labels": {**mesh_labels(mesh_id), SANDBOX: hashed(sandbox_id), TEMPLATE: template.rstrip("-_")},
        "annotations": {
            SANDBOX_ID: sandbox_id,
            MESH_ID: mesh_id,
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        },
    }


def sandbox_id_of(resource: Mapping[str, Any] | None) -> str:
    """Return the sandbox that a pod or Secret is of, empty if it is of none."""
    annotations: Mapping[str, str] | None = resource["metadata"].get("annotations") if resource else None
    return (annotations or {}).get(SANDBOX_ID, "")
