"""The images that are here: pulled, unpacked and shared by all meshes of a user.

Below the directory: `blobs` as registries have them, `layers` unpacked, `references` with the manifest that each name
led to, `uses` with a file for each manifest, locked while the image is used, `locks`, and `partial` downloads.
All of it has its name only when it is complete; what a killed process leaves, the next one completes or removes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sandmesh.errors import InvalidArgument, PermissionDenied
from sandmesh.shared.traces.context import MOST_NAME
from sandmeshd.images.blobs import Blobs
from sandmeshd.images.builds.folders import remove_abandoned, remove_caches
from sandmeshd.images.collection import Collection, Freed
from sandmeshd.images.documents import Manifest, ProgramConfig, parse_document, parse_manifest
from sandmeshd.images.extension import Extension, NewLayer, correct
from sandmeshd.images.file_locks import locked
from sandmeshd.images.image import PulledImage, to_image
from sandmeshd.images.layers.layers import Layers
from sandmeshd.images.layers.unpack import require_owners
from sandmeshd.images.progress import Report
from sandmeshd.images.pull import Pull
from sandmeshd.images.records import ImageRecords
from sandmeshd.images.reference import STEPS, LocalReference, Reference, parse_reference
from sandmeshd.images.registry.policy import check_policy
from sandmeshd.images.registry.push import push_image
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.sources.archives import recognize
from sandmeshd.images.sources.selection import open_source
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.runtime.paths import make_private
from sandmeshd.runtime.telemetry.phases import phase


class ImageStore:
    """The images below `settings.images`, or `default` where that is not set."""

    def __init__(self, settings: ImageSettings, default: Path) -> None:
        self.settings = settings
        self.directory = settings.images or default
        self._locks = self.directory / "locks"
        self._records = ImageRecords(self.directory)
        self._blobs = Blobs(self.directory / "blobs", self._locks)
        self._layers = Layers(self.directory / "layers", self._locks)

    async def pull(self, reference: str, name: str = "", *, progress: Report = lambda step: None) -> PulledImage:
        """Return an image, which is downloaded and unpacked as far as it is not here, under its name or another.

        Raises:
            InvalidArgument: There is no such image, it is not for this platform, or it is damaged or hostile.
            TooLarge: It is larger than the settings allow.
            PermissionDenied: The registry wants credentials, or the policy forbids the image.
            RuntimeUnavailable: The registry does not respond, the disk is full, or this user has no subordinate ids.
        """
        return await self._pull(reference, name or reference, progress)

    async def import_image(self, path: Path, name: str, *, progress: Report = lambda step: None) -> PulledImage:
        """Return an image of a file or directory of this machine, under a new name.

        It may be an OCI layout, one in a tar, what `docker save` wrote, or the tar of a root file system.

        Raises:
            InvalidArgument: The name has a digest, or the file is not an image.
            TooLarge, RuntimeUnavailable: As `pull`.
        """
        if not isinstance(named := parse_reference(name), Reference) or named.digest:
            raise InvalidArgument(f"{name!r} cannot be the name of an imported image: use one like mine:1")
        local = await asyncio.to_thread(recognize, path)
        return await self._pull(str(local), name, progress)

    def find(self, reference: str) -> PulledImage | None:
        """Return an image that was pulled by this name, None if there is none.

        Raises:
            InvalidArgument: It is not the name of an image.
            PermissionDenied: The policy forbids it.
        """
        parsed = parse_reference(reference)
        check_policy(self.settings, parsed)
        digest = self._records.find(str(parsed))
        return None if digest is None else self._load(str(parsed), digest)

    def find_current(self, reference: str, check_pull: Callable[[str], None], name: str = "") -> PulledImage | None:
        """Return an image as `find`, by the reference or under another name; None where it must be pulled.

        An image of a file or directory that has changed since must be pulled again where `check_pull` allows it.

        Raises:
            InvalidArgument, PermissionDenied: As `find` and `check_pull`.
        """
        found = (self.find(name) if name else None) or self.find(reference)
        parsed = parse_reference(reference)
        version = parsed.version() if isinstance(parsed, LocalReference) else ""
        if found is not None and version in ("", self._records.version(found.reference)):
            return found
        try:
            check_pull(reference)
        except PermissionDenied:
            if found is None:
                raise
            return found
        return None

    def find_digest(self, reference: str, digest: str) -> PulledImage | None:
        """Return an image that was pulled by this name, also where the name leads to another by now.

        Raises:
            InvalidArgument, PermissionDenied: As `find`.
        """
        parsed = parse_reference(reference)
        check_policy(self.settings, parsed)
        return self._load(str(parsed), digest)

    def list_all(self) -> list[PulledImage]:
        """Return the images that are here, by name."""
        named = (pair for pair in self._records.list_all() if not pair[0].startswith(STEPS))
        images = (self._load(reference, digest) for reference, digest in named)
        return sorted((image for image in images if image is not None), key=lambda image: image.reference)

    def hold(self, image: PulledImage) -> int:
        """Return a descriptor; as long as it or a copy of it is open, in whatever process, the image stays.

        Raises:
            InvalidArgument: The image was removed.
        """
        descriptor = self._records.lock(image.digest, shared=True)
        if descriptor is not None and self._load(image.reference, image.digest) is not None:
            return descriptor
        if descriptor is not None:
            os.close(descriptor)
        raise InvalidArgument(f"the image {image.reference} was removed: pull it again")

    async def remove(self, reference: str) -> Freed:
        """Remove an image by its name, and what no other has.

        Raises:
            InvalidArgument: There is none.
            WrongState: A sandbox uses it.
        """
        name = str(parse_reference(reference))
        if self._records.find(name) is None:
            raise InvalidArgument(f"there is no image {name} here: `sandmesh image ls` lists those there are")
        async with locked(self._locks / "store"):
            return await asyncio.to_thread(self._collection.remove, name)

    async def prune(self, *, unused_seconds: float = 0.0, most_bytes: int | None = None) -> Freed:
        """Remove images that no sandbox uses, and what belongs to none.

        Those that were used within `unused_seconds` stay, and so do caches of builds' commands; with `most_bytes`,
        those that were not used for longest go until the rest has no more.
        """
        if not self.directory.exists():
            return Freed()
        async with locked(self._locks / "store"):
            freed = await asyncio.to_thread(self._collection.prune, unused_seconds, most_bytes)
        await asyncio.to_thread(remove_abandoned, self.directory)
        if most_bytes is None:
            await asyncio.to_thread(remove_caches, self.directory, unused_seconds)
        return freed

    async def push(self, image: PulledImage, target: str, *, progress: Report = lambda step: None) -> str:
        """Push an image to a registry under a name; return the name with its digest.

        Raises:
            InvalidArgument: The target is not a registry's.
            PermissionDenied: The registry wants credentials.
            RuntimeUnavailable: The registry does not respond.
        """
        parsed = parse_reference(target)
        if not isinstance(parsed, Reference) or parsed.digest:
            raise InvalidArgument(f"{target!r} is not where an image can be pushed: use REGISTRY/NAME:TAG")
        held = self.hold(image)
        try:
            manifest = self._manifest(image.digest)
            await push_image(self.settings, parsed, self._blobs, (image.digest, manifest), progress)
        finally:
            os.close(held)
        return f"{parsed.registry}/{parsed.repository}@{image.digest}"

    @property
    def extension(self) -> Extension:
        """What reads configurations and layers of images that are here."""
        return Extension(self.settings, self._records, self._blobs, self._layers)

    async def prepare(self) -> None:
        """Make the directories of a store that is new.

        Raises:
            RuntimeUnavailable: The disk is full, or this user has no subordinate ids.
        """
        await asyncio.to_thread(require_owners)
        with full_disk_explained(self.directory):
            await asyncio.to_thread(self._make)

    async def extend(
        self, name: str, base: PulledImage | None, config: Mapping[str, Any], layer: NewLayer | None
    ) -> PulledImage:
        """Return an image made of another, or of nothing: see `Extension.extend`. The base must be held.

        Raises:
            InvalidArgument, PermissionDenied, TooLarge, RuntimeUnavailable: As `pull`.
        """
        parsed = parse_reference(name)
        check_policy(self.settings, parsed)
        with full_disk_explained(self.directory):
            async with locked(self._locks / "store", shared=True):
                image = await self.extension.extend(str(parsed), base, config, layer)
        await self._collect(image)
        return image

    async def _pull(self, reference: str, name: str, progress: Report) -> PulledImage:
        parsed, named = parse_reference(reference), parse_reference(name)
        check_policy(self.settings, parsed)
        await asyncio.to_thread(require_owners)
        version = parsed.version() if isinstance(parsed, LocalReference) else ""
        with full_disk_explained(self.directory), phase("pull", image=name[:MOST_NAME]):
            await asyncio.to_thread(self._make)
            async with locked(self._locks / "store", shared=True):
                async with open_source(self.settings, parsed, self._blobs.partial) as source:
                    pull = Pull(self.settings, self._blobs, self._layers, source, progress)
                    digest, config, layers = await pull.run(parsed)
                    correction = await correct(self._blobs, self._layers, layers)
                self._records.write(str(named), digest, correction.content.diff_id if correction else "", version)
        image = to_image(str(named), digest, config, [*layers, *([correction] if correction else [])])
        await self._collect(image)
        return image

    async def _collect(self, image: PulledImage) -> None:
        """Remove what was not used for longest where all images together have become too large."""
        if self._collection.size() > self.settings.images_bytes:
            held = self.hold(image)
            try:
                await self.prune(most_bytes=self.settings.images_bytes)
            finally:
                os.close(held)

    @property
    def _collection(self) -> Collection:
        return Collection(self._records, self._blobs, self._layers)

    def _manifest(self, digest: str) -> Manifest:
        return parse_manifest(self._blobs.read(digest) or b"")

    def _load(self, reference: str, digest: str) -> PulledImage | None:
        data = self._blobs.read(digest)
        config_data = None if data is None else self._blobs.read(parse_manifest(data).config.digest)
        if config_data is None:
            return None
        config = parse_document(config_data, ProgramConfig)
        correction = self._records.correction(digest)
        diff_ids = (*config.rootfs.diff_ids, *([correction] if correction else []))
        layers = [layer for diff_id in diff_ids if (layer := self._layers.find(diff_id)) is not None]
        return to_image(reference, digest, config, layers) if len(layers) == len(diff_ids) else None

    def _make(self) -> None:
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        make_private(self.directory, 0o700)
        for path in (self._locks, self._blobs.directory, self._blobs.partial, self._layers.directory):
            path.mkdir(exist_ok=True)
        self._records.make()
