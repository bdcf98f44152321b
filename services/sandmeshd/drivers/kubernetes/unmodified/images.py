"""Images as a cluster has them: its machines pull, and the driver reads of the registry what an image says."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

from sandmesh.errors import CapabilityMissing, PermissionDenied
from sandmeshd.drivers.kubernetes.requirements import NAME
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.node.images.containers import check_volumes
from sandmeshd.drivers.node.images.policy import store_settings
from sandmeshd.images.image import ImageConfig
from sandmeshd.images.lookup import look_up
from sandmeshd.images.reference import LocalReference, Reference, parse_reference
from sandmeshd.images.registry.policy import check_policy

_KNOWN_SECONDS: Final = 60.0
"""How long a tag is taken to lead where it led: registries count each look."""
_MOST_KNOWN: Final = 256


@dataclass(frozen=True)
class ClusterImage:
    """An image that a cluster's machines can pull."""

    reference: str
    pinned: str
    """Its name by digest, so that pods have what its configuration was read of."""
    config: ImageConfig


class ClusterImages:
    """The images of one driver's sandboxes."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._images = store_settings(settings)
        self._known: dict[Reference, tuple[float, ClusterImage]] = {}

    async def find(self, name: str) -> ClusterImage:
        """Return an image.

        Raises:
            PermissionDenied: A setting forbids it, or the registry wants credentials that the driver does not have.
            CapabilityMissing: It is named as a file, which no cluster sees.
            InvalidArgument: It does not exist, is for another platform, or no sandbox can have it.
            RuntimeUnavailable: The registry does not respond.
        """
        reference = parse_reference(name)
        check_policy(self._images, reference)
        if isinstance(reference, LocalReference):
            fix = "push it to a registry (sandmesh image push), and use the name that it has there"
            message = f"the {NAME} driver runs what its cluster's machines pull, and {reference} is a file: {fix}"
            raise CapabilityMissing(message, {"needs": "images", "fix": fix})
        if self._settings.image_sandboxes == "pulled":
            fix = "have an administrator set SANDMESH_IMAGE_SANDBOXES=any, and SANDMESH_IMAGE_REGISTRIES to what may be"
            raise PermissionDenied(f"only pulled images are allowed, and a cluster keeps none: {fix}", {"fix": fix})
        then, known = self._known.get(reference, (0.0, None))
        if known is not None and time.monotonic() - then < _KNOWN_SECONDS:
            return known
        digest, config = await look_up(self._images, reference)
        check_volumes(str(reference), config)
        pinned = replace(reference, tag="", digest=digest)
        found = ClusterImage(str(reference), str(pinned), config)
        while len(self._known) >= _MOST_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[reference] = time.monotonic(), found
        return found
