"""The images that sandboxes may have: found here, or pulled for the first that wants one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from sandmesh.errors import InvalidArgument, PermissionDenied
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.images.policy import check_pull_allowed, store_settings
from sandmeshd.images.image import PulledImage
from sandmeshd.images.reference import BUILDS, Reference, parse_reference
from sandmeshd.images.store import ImageStore


def check_pull(settings: BubblewrapSettings, reference: str) -> None:
    """Check that an image that is not here may be pulled for a user.

    Raises:
        PermissionDenied: It names a file of the host's in a mesh of several users, or only pulled ones are allowed.
        InvalidArgument: It was built, and is not here any more.
    """
    parsed = parse_reference(reference)
    if isinstance(parsed, Reference) and parsed.registry == BUILDS:
        raise InvalidArgument(f"the image {reference} was built here and removed since: build it again")
    check_pull_allowed(settings, parsed, f"sandmesh image pull {reference}")


def check_build(settings: BubblewrapSettings) -> None:
    """Check that users may build images, whose commands have root inside.

    Raises:
        PermissionDenied: A setting forbids images or root inside.
    """
    for name, value in (("IMAGE", settings.image_sandboxes), ("ROOT", settings.root_sandboxes)):
        if value == "never":
            fix = f"have an administrator change SANDMESH_{name}_SANDBOXES"
            raise PermissionDenied(f"builds of images are forbidden here: {fix}", {"fix": fix})


class ImageSource:
    """The images of one driver's sandboxes."""

    def __init__(self, settings: BubblewrapSettings) -> None:
        self._settings = settings
        self._store = ImageStore(store_settings(settings), settings.paths.state_root / "images")
        self._pulls: dict[str, asyncio.Task[PulledImage]] = {}

    @asynccontextmanager
    async def held(self, reference: str, digest: str = "") -> AsyncGenerator[tuple[PulledImage, int]]:
        """Yield an image, and the lock that keeps it as long as any copy of that is open.

        `digest` is of the manifest that the reference once led to, which is preferred while it is here.

        Raises:
            PermissionDenied: It names a file of the host's in a mesh of several users, or one that is not pulled.
            InvalidArgument, TooLarge, RuntimeUnavailable: As `ImageStore.pull`.
        """
        earlier = await asyncio.to_thread(self._store.find_digest, reference, digest) if digest else None
        image = earlier or await self._find(reference)
        hold = self._store.hold(image)
        try:
            yield image, hold
        finally:
            os.close(hold)

    async def is_here(self, reference: str) -> bool:
        """Return whether an image was pulled."""
        return await asyncio.to_thread(self._store.find, reference) is not None

    async def _find(self, reference: str) -> PulledImage:
        allowed = partial(check_pull, self._settings)
        found = await asyncio.to_thread(self._store.find_current, reference, allowed)
        if found is not None:
            return found
        task = self._pulls.get(reference)
        if task is None:
            task = self._pulls[reference] = asyncio.create_task(self._store.pull(reference))
            task.add_done_callback(lambda _: self._pulls.pop(reference, None))
        # Who gives up leaves the pull to the others, and to a later request.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the pulls that run; what they have is kept."""
        tasks = list(self._pulls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
