"""Which images an administrator allows, and through which mirrors they come."""

from __future__ import annotations

from fnmatch import fnmatchcase

from sandmesh.errors import PermissionDenied
from sandmeshd.images.reference import BUILT, PRIVATE, STEPS, AnyReference, Reference
from sandmeshd.images.settings import ImageSettings


def check_policy(settings: ImageSettings, reference: AnyReference) -> None:
    """Check that an image may be used.

    Raises:
        PermissionDenied: Its registry or repository is not among the allowed ones, or it has no digest and must.
    """
    name = f"{reference.registry}/{reference.repository}" if isinstance(reference, Reference) else str(reference)
    if name in (STEPS, BUILT, PRIVATE):
        # It is made here, of an image that was checked.
        return
    allowed = settings.image_registries
    if allowed and not any(fnmatchcase(name, pattern) for pattern in allowed):
        message = f"the image {name} is not allowed here: SANDMESH_IMAGE_REGISTRIES has {', '.join(allowed)}"
        raise PermissionDenied(message, {"image": str(reference)})
    if settings.image_digests_only and not (isinstance(reference, Reference) and reference.digest):
        message = f"images must be named by digest here (SANDMESH_IMAGE_DIGESTS_ONLY): {name}@sha256:..."
        raise PermissionDenied(message, {"image": str(reference)})


def mirrors_of(settings: ImageSettings, registry: str) -> list[str]:
    """Return the URLs of a registry's mirrors, in order."""
    pairs = (entry.partition("=") for entry in settings.image_mirrors)
    return [url.rstrip("/") for name, _, url in pairs if name == registry]
