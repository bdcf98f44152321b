"""What the driver does otherwise for sandboxes whose root is an image."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import fields, replace

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.bubblewrap.images.id_ranges import IDS, IdRanges
from sandmeshd.drivers.bubblewrap.images.plan import ImagePlan, ImageRoot
from sandmeshd.drivers.bubblewrap.images.source import ImageSource
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.starts.exec_start import Plan
from sandmeshd.drivers.bubblewrap.starts.start_modes import StartModes
from sandmeshd.drivers.node.images.policy import check_images_allowed, check_root_allowed, tier_of
from sandmeshd.drivers.node.images.process import KERNELS, describe_kernels
from sandmeshd.drivers.node.mounts.user_view import USER_PLACES
from sandmeshd.drivers.node.records import Folder
from sandmeshd.drivers.snapshots.snapshots import IMAGE
from sandmeshd.images.image import PulledImage
from sandmeshd.templates import Template


class ImageSandboxes:
    """Finds images, and starts sandboxes with them."""

    def __init__(
        self,
        settings: BubblewrapSettings,
        source: ImageSource,
        modes: StartModes[ImagePlan],
        ranges: IdRanges,
        user_filter: bytes,
    ) -> None:
        self._settings = settings
        self._source = source
        self._modes = modes
        self._ranges = ranges
        self.user_filter = user_filter
        """The filter of system calls of user code in images."""

    @property
    def able(self) -> bool:
        """Whether sandboxes can have images here."""
        return not self._ranges.lacking and self._settings.image_sandboxes != "never"

    @property
    def root_able(self) -> bool:
        """Whether sandboxes can have root inside."""
        return self.able and self._settings.root_sandboxes == "allowed"

    def check_root(self, spec: sandbox_pb2.SandboxSpec) -> None:
        """Check that a sandbox without an image does not want root.

        Raises:
            CapabilityMissing: It does.
        """
        if spec.root:
            fix = "name an image, as image='debian:12'"
            message = f"the bubblewrap driver has root inside only in an image, since other roots are read-only: {fix}"
            raise CapabilityMissing(message, {"needs": "root", "fix": fix})

    async def check_here(self, reference: str, template: Template) -> None:
        """Refuse a template's own image that was not pulled.

        Raises:
            CapabilityMissing: It was not; the message has the command.
        """
        if reference == template.image and not await self._source.is_here(reference):
            fix = f"sandmesh image pull {reference}, or name a shipped one (runtime-sandbox-base)"
            message = f"the image {reference} of the template {template.name!r} is not here: {fix}"
            raise CapabilityMissing(message, {"needs": "image", "fix": fix, "template": template.name})

    @asynccontextmanager
    async def held(
        self, spec: sandbox_pb2.SandboxSpec, reference: str, template: Template, digest: str = ""
    ) -> AsyncGenerator[tuple[PulledImage, ImageRoot]]:
        """Yield a sandbox's image, which stays while the block runs, and the root that is made of it.

        `digest` is as in `ImageSource.held`.

        Raises:
            CapabilityMissing: This machine or this driver cannot.
            PermissionDenied: A setting forbids it, or it names a file of the host's in a mesh of several users.
            InvalidArgument, TooLarge, RuntimeUnavailable: As `ImageStore.pull`.
        """
        self._check(spec)
        await self.check_here(reference, template)
        self._ranges.check()
        async with self._source.held(reference, digest) as (image, hold):
            config = image.config
            wanted = spec.root if spec.HasField("root") else template.root
            allowed = self._settings.root_sandboxes == "allowed"
            root = ImageRoot(image.layers, config.user, wanted, config.working_dir or "/", hold, allowed)
            check_root_allowed(self._settings, config.user, wanted)
            yield image, root

    def _check(self, spec: sandbox_pb2.SandboxSpec) -> None:
        check_images_allowed(self._settings)
        unmet = [name for name in ("workspace_dir", "volumes") if getattr(spec, name)]
        if unmet:
            fix = "drop them, or copy files with box.fs"
            message = f"the bubblewrap driver has no {' and no '.join(unmet)} in sandboxes with images: {fix}"
            raise CapabilityMissing(message, {"needs": ", ".join(unmet), "fix": fix})

    def describe(self, image: PulledImage, root: ImageRoot) -> dict[str, str]:
        """Return what is known of a sandbox's root, for people."""
        ids = "its own" if os.geteuid() == 0 else "shared with this user's other sandboxes with images"
        tier = tier_of(root.user, root.root)
        return {
            IMAGE: f"{image.reference} ({image.digest})",
            KERNELS: describe_kernels(),
            "root": f"{tier}; writable, copy-on-write; {IDS} ids, {ids}",
        }

    async def start(self, plan: Plan, root: ImageRoot) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`."""
        data = tuple(pair for pair in plan.mounts.data if pair[1] not in USER_PLACES)
        own = replace(plan, mounts=replace(plan.mounts, data=data))
        whole = {field.name: getattr(own, field.name) for field in fields(own)}
        return await self._modes.start(ImagePlan(**whole, root=root))

    def release(self, folder: Folder) -> None:
        """Release the ids of a sandbox without processes."""
        self._ranges.release_of(folder)

    async def close(self) -> None:
        """End the pulls that run, and release the zygotes; sandboxes live on."""
        await self._source.close()
        await self._modes.close()
