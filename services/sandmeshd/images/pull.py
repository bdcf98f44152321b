"""One pull: from a name through the manifest of this platform to unpacked layers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Final

from sandmesh.errors import InvalidArgument, TooLarge
from sandmeshd.images.blobs import Blobs
from sandmeshd.images.documents import (
    INDEXES,
    Descriptor,
    Index,
    Manifest,
    Platform,
    ProgramConfig,
    choose_manifest,
    parse_document,
    parse_manifest,
)
from sandmeshd.images.layers.layers import Layer, Layers
from sandmeshd.images.layers.unpack import LayerLimits
from sandmeshd.images.progress import PullProgress, Report
from sandmeshd.images.reference import AnyReference, Reference
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.sources.archives import machine_architecture
from sandmeshd.images.sources.source import RepositorySource

_MOST_INDEXES: Final = 3
_DOWNLOADS: Final = 3


class Pull:
    """One pull from a source."""

    def __init__(
        self, settings: ImageSettings, blobs: Blobs, layers: Layers, source: RepositorySource, progress: Report
    ) -> None:
        self._settings = settings
        self._blobs = blobs
        self._layers = layers
        self._source = source
        self._progress = progress
        self._fetched: dict[str, int] = {}
        self._total = 0

    async def run(self, reference: AnyReference) -> tuple[str, ProgramConfig, list[Layer]]:
        """Return the manifest's digest, the configuration and the layers.

        Raises:
            InvalidArgument, TooLarge, PermissionDenied, RuntimeUnavailable: As `ImageStore.pull`.
        """
        self._progress(PullProgress(f"looking up {reference.familiar}"))
        digest, manifest = await self._fetch_manifest(reference)
        config = parse_document(await self._blobs.fetch_document(self._source, manifest.config), ProgramConfig)
        diff_ids = config.rootfs.diff_ids
        if len(diff_ids) != len(manifest.layers):
            counts = f"{len(manifest.layers)} layers, and its configuration {len(diff_ids)}"
            raise InvalidArgument(f"the image is damaged: its manifest has {counts}")
        own = Platform(os=config.os, architecture=config.architecture)
        if own.architecture and not platform().takes(own):
            raise InvalidArgument(f"the image is for {own}, and this machine is {platform()}")
        return digest, config, await self._fetch_layers(manifest, diff_ids)

    async def _fetch_manifest(self, reference: AnyReference) -> tuple[str, Manifest]:
        """Return the manifest for this platform, through indexes as far as there are some."""
        wanted = reference.wanted if isinstance(reference, Reference) else reference.name
        resolved = await self._source.read_manifest(wanted)
        data, media_type = resolved.data, resolved.media_type
        digest = wanted if wanted.startswith("sha256:") else f"sha256:{hashlib.sha256(data).hexdigest()}"
        self._blobs.add(data, digest)
        for _ in range(_MOST_INDEXES):
            if media_type not in INDEXES and b'"manifests"' not in data:
                return digest, parse_manifest(data)
            chosen = choose_manifest(parse_document(data, Index), platform())
            digest, media_type = chosen.digest, chosen.media_type
            data = self._blobs.read(digest) or (await self._source.read_manifest(digest)).data
            self._blobs.add(data, digest)
        raise InvalidArgument("the image's index leads only to indexes")

    async def _fetch_layers(self, manifest: Manifest, diff_ids: tuple[str, ...]) -> list[Layer]:
        """Download layers side by side, and unpack them one by one as they come."""
        missing = [blob for blob, one in zip(manifest.layers, diff_ids, strict=True) if self._layers.find(one) is None]
        self._total = sum({blob.digest: blob.size for blob in missing}.values())
        if self._total > self._settings.image_bytes:
            raise TooLarge(f"the image's layers have {self._total} bytes (SANDMESH_IMAGE_BYTES)")
        slots = asyncio.Semaphore(_DOWNLOADS)
        async with _cancelling() as start:
            downloads = {blob.digest: start(self._download(blob, slots)) for blob in missing}
            bounds = LayerLimits(self._settings.image_bytes, self._settings.image_files)
            layers: list[Layer] = []
            for blob, diff_id in zip(manifest.layers, diff_ids, strict=True):
                if blob.digest in downloads:
                    await downloads[blob.digest]
                layer = await self._unpack(blob, diff_id, bounds)
                bounds = LayerLimits(bounds.bytes - layer.content.size, bounds.files - layer.content.files)
                layers.append(layer)
        return layers

    async def _download(self, blob: Descriptor, slots: asyncio.Semaphore) -> None:
        def report(size: int) -> None:
            self._fetched[blob.digest] = size
            self._progress(PullProgress("pulling", sum(self._fetched.values()), self._total))

        async with slots:
            await self._blobs.fetch(self._source, blob, report)
        report(blob.size)

    async def _unpack(self, blob: Descriptor, diff_id: str, bounds: LayerLimits) -> Layer:
        def report(size: int) -> None:
            done = sum(self._fetched.values())
            del size
            self._progress(PullProgress(f"unpacking {diff_id[7:19]}", done, self._total))

        return await self._layers.unpack(self._blobs.path(blob.digest), diff_id, bounds, report)


@asynccontextmanager
async def _cancelling() -> AsyncGenerator[Callable[[Coroutine[None, None, None]], asyncio.Task[None]]]:
    """Yield what starts tasks; those that are not done at the end are cancelled, and waited for."""
    tasks: list[asyncio.Task[None]] = []

    def start(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def platform() -> Platform:
    """Return what this machine runs."""
    return Platform(os="linux", architecture=machine_architecture())
