"""What an administrator allows of images and of root inside, and which tier a sandbox is of."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from sandmesh.errors import PermissionDenied
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.images.reference import AnyReference, LocalReference
from sandmeshd.images.settings import ImageSettings

_SUPERUSERS: Final = ("", "0", "root")


class ImageSandboxSettings(DriverSettings):
    """Settings of a driver whose sandboxes can have an image as their root."""

    image_store: ImageSettings | None = Field(default=None, exclude=True)
    """Where images are, and what they may be: the mesh's settings."""

    root_sandboxes: Literal["allowed", "never"] = Field(default="allowed", validation_alias="SANDMESH_ROOT_SANDBOXES")
    """Whether sandboxes may have root inside, where an image is their root."""

    image_sandboxes: Literal["any", "pulled", "never"] = Field(
        default="any", validation_alias="SANDMESH_IMAGE_SANDBOXES"
    )
    """Which images sandboxes may have: any, only those that an administrator has pulled, or none."""


def store_settings(settings: ImageSandboxSettings) -> ImageSettings:
    """Return the settings of images as they are for those that users name."""
    found = settings.image_store or ImageSettings()
    if found.image_public_only is None:
        found = found.model_copy(update={"image_public_only": not settings.own_workspaces})
    return found


def is_root(user: str, root: bool | None) -> bool:
    """Return whether user code is root in an image, by its USER and what was requested; the image may know better."""
    return root if root is not None else user.partition(":")[0] in _SUPERUSERS


def tier_of(user: str, root: bool | None) -> str:
    """Return what user code is in its image, for people."""
    return "root inside" if is_root(user, root) else f"user {user or 'sandbox'} inside"


def check_images_allowed(settings: ImageSandboxSettings) -> None:
    """Check that sandboxes may have images.

    Raises:
        PermissionDenied: A setting forbids it.
    """
    if settings.image_sandboxes == "never":
        fix = "drop `image`, or have an administrator set SANDMESH_IMAGE_SANDBOXES"
        raise PermissionDenied(f"sandboxes with images are forbidden here: {fix}", {"fix": fix})


def check_root_allowed(settings: ImageSandboxSettings, user: str, root: bool | None) -> None:
    """Check that user code may be what an image's USER and the request say.

    Raises:
        PermissionDenied: It would be root, which a setting forbids.
    """
    if settings.root_sandboxes == "never" and is_root(user, root):
        fix = "root=False, or an image whose USER is not root"
        message = f"root inside sandboxes is forbidden here (SANDMESH_ROOT_SANDBOXES): {fix}"
        raise PermissionDenied(message, {"fix": fix})


def check_pull_allowed(settings: ImageSandboxSettings, reference: AnyReference, command: str) -> None:
    """Check that a user may have an image pulled; `command` does it for an administrator.

    Raises:
        PermissionDenied: Only what is here is allowed, or it is a file of the machine in a mesh of several users.
    """
    local = isinstance(reference, LocalReference)
    if settings.image_sandboxes == "pulled" or (local and not settings.own_workspaces):
        fix = f"have an administrator run: {command}"
        why = "is a file of the mesh's machine" if local else "was not pulled"
        raise PermissionDenied(f"the image {reference} {why}, and users may not pull it: {fix}", {"fix": fix})
