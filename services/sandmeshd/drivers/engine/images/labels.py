"""The labels of images, as an engine has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROTOCOL_LABEL, SOURCES_LABEL, TEMPLATE_LABEL = (f"dev.sandmesh.{name}" for name in ("protocol", "sources", "template"))


def labels_of(image: Mapping[str, Any]) -> Mapping[str, str]:
    """Return an image's labels."""
    config: dict[str, Any] = image.get("Config") or {}
    labels: dict[str, str] | None = config.get("Labels")
    return labels or {}
