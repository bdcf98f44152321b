"""Names of images with the old defaults and variables."""

from __future__ import annotations

import os

import sandmesh


def build_image_uri(
    image_name: str, tag: str | None = None, registry: str | None = None, namespace: str | None = None
) -> str:
    """Return `registry/namespace/name:tag`, or `namespace/name:tag` for an empty registry.

    The defaults are RUNTIME_SANDBOX_REGISTRY, RUNTIME_SANDBOX_IMAGE_NAMESPACE and RUNTIME_SANDBOX_IMAGE_TAG, else no
    registry, "agentscope" and "latest". A mesh knows its own templates by only the name, `runtime-sandbox-base`.
    """
    defaults = {
        "registry": os.environ.get("RUNTIME_SANDBOX_REGISTRY", ""),
        "namespace": os.environ.get("RUNTIME_SANDBOX_IMAGE_NAMESPACE", "agentscope"),
        "tag": os.environ.get("RUNTIME_SANDBOX_IMAGE_TAG", "latest"),
    }
    return sandmesh.build_image_uri(
        image_name,
        tag or defaults["tag"],
        defaults["registry"] if registry is None else registry,
        defaults["namespace"] if namespace is None else namespace,
    )
