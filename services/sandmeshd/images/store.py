"""The images that are here: pulled, unpacked and shared by all meshes of a user.

Below the directory: `blobs` as registries have them, `layers` unpacked, `references` with the manifest that each name
led to, `uses` with a file for each manifest, locked while the image is used, `locks`, and `partial` downloads.
All of it has its name only when it is complete; what a killed process leaves, the next one completes or removes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.images.blobs import Blobs
from sandmeshd.images.documents import (
    INDEXES,
    Config,
    Descriptor,
    Index,
    Manifest,
    Platform,
    choose_manifest,
    parse_document,
    parse_manifest,
)
from sandmeshd.images.file_locks import locked, try_lock
from sandmeshd.images.image import Image, to_image_config
from sandmeshd.images.layers.layers import Layer, Layers
from sandmeshd.images.layers.unpack import Limits, require_owners
from sandmeshd.images.reference import AnyReference, LocalReference, Reference, parse_reference
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.sources import archives
from sandmeshd.images.sources.oci_layout import OciLayout
from sandmeshd.images.sources.source import Source
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.runtime.paths import make_private
from sandmeshd.runtime.user_namespaces.removal import remove_tree

_LAY_OUT: Final = {
    "oci-archive": archives.lay_out_oci_archive,
    "docker-archive": archives.lay_out_docker_archive,
    "tar": archives.lay_out_root,
}
_MOST_INDEXES: Final = 3


@dataclass(frozen=True)
class Progress:
    """How far a pull is: what it does, and bytes done of all that are known of."""

    message: str
    done: int = 0
    total: int = 0


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class _LayerReport:
    """Reports how far one layer is, as part of all."""

    report: Report
    what: str
    done: int
    total: int

    def fetched(self, size: int) -> None:
        """Report how many bytes of it were downloaded."""
        self.report(Progress(f"pulling {self.what}", self.done + size, self.total))

    def unpacked(self, size: int) -> None:
        """Report how many bytes of its tar were unpacked."""
        self.report(Progress(f"unpacking {self.what}: {size >> 20} MiB", self.done, self.total))


class ImageStore:
    """The images below `settings.images`, or `default` where that is not set."""

    def __init__(self, settings: ImageSettings, default: Path) -> None:
        self._settings = settings
        self.directory = settings.images or default
        self._locks = self.directory / "locks"
        self._references = self.directory / "references"
        self._uses = self.directory / "uses"
        self._blobs = Blobs(self.directory / "blobs", self._locks)
        self._layers = Layers(self.directory / "layers", self._locks)

    async def pull(self, reference: str, *, progress: Report = lambda step: None) -> Image:
        """Return an image, which is downloaded and unpacked as far as it is not here.

        Raises:
            InvalidArgument: There is no such image, it is not for this platform, or it is damaged or hostile.
            TooLarge: It is larger than the settings allow.
            PermissionDenied: The registry wants credentials, or the policy forbids the image.
            RuntimeUnavailable: The registry does not respond, the disk is full, or this user has no subordinate ids.
        """
        parsed = parse_reference(reference)
        await asyncio.to_thread(require_owners)
        self._make()
        with full_disk_explained(self.directory):
            async with locked(self._locks / "store", shared=True), self._source(parsed) as source:
                return await self._pull(parsed, source, progress)

    def find(self, reference: str) -> Image | None:
        """Return an image that was pulled by this name, None if there is none."""
        parsed = parse_reference(reference)
        try:
            record = json.loads(self._reference_path(str(parsed)).read_text())
        except FileNotFoundError:
            return None
        return self._load(str(parsed), record["digest"])

    def list_all(self) -> list[Image]:
        """Return the images that are here, by name."""
        records = [json.loads(path.read_text()) for path in self._references.glob("*.json")]
        images = (self._load(record["reference"], record["digest"]) for record in records)
        return sorted((image for image in images if image is not None), key=lambda image: image.reference)

    def hold(self, image: Image) -> int:
        """Return a descriptor; as long as it or a copy of it is open, in whatever process, the image stays.

        Raises:
            InvalidArgument: The image was removed.
        """
        descriptor = try_lock(self._use_path(image.digest), shared=True)
        if descriptor is None or self._load(image.reference, image.digest) is None:
            if descriptor is not None:
                os.close(descriptor)
            raise InvalidArgument(f"the image {image.reference} was removed: pull it again")
        os.utime(descriptor)
        return descriptor

    async def _pull(self, reference: AnyReference, source: Source, progress: Report) -> Image:
        descriptor, manifest = await self._fetch_manifest(reference, source)
        config_data = await self._blobs.fetch_document(source, manifest.config)
        config = parse_document(config_data, Config)
        diff_ids = config.rootfs.diff_ids
        if len(diff_ids) != len(manifest.layers):
            counts = f"{len(manifest.layers)} layers, and its configuration {len(diff_ids)}"
            raise InvalidArgument(f"the image is damaged: its manifest has {counts}")
        layers = await self._fetch_layers(source, manifest, diff_ids, progress)
        self._use_path(descriptor.digest).touch()
        self._write_reference(str(reference), descriptor.digest)
        return _image(str(reference), descriptor.digest, config, layers)

    async def _fetch_manifest(self, reference: AnyReference, source: Source) -> tuple[Descriptor, Manifest]:
        """Return the manifest for this platform, through indexes as far as there are some."""
        wanted = reference.wanted if isinstance(reference, Reference) else reference.name
        resolved = await source.read_manifest(wanted)
        digest = f"sha256:{hashlib.sha256(resolved.data).hexdigest()}"
        self._blobs.add(resolved.data, wanted if wanted.startswith("sha256:") else digest)
        descriptor = Descriptor(media_type=resolved.media_type, digest=digest, size=len(resolved.data))
        data = resolved.data
        for _ in range(_MOST_INDEXES):
            if descriptor.media_type not in INDEXES and b'"manifests"' not in data[:65536]:
                return descriptor, parse_manifest(data)
            descriptor = choose_manifest(parse_document(data, Index), self.platform)
            data = (await source.read_manifest(descriptor.digest)).data
            self._blobs.add(data, descriptor.digest)
        raise InvalidArgument("the image's index leads to indexes alone")

    @property
    def platform(self) -> Platform:
        """What images are for."""
        return Platform(os="linux", architecture=archives.machine_architecture())

    async def _fetch_layers(
        self, source: Source, manifest: Manifest, diff_ids: tuple[str, ...], progress: Report
    ) -> list[Layer]:
        bounds = Limits(self._settings.image_bytes, self._settings.image_files)
        total = sum(blob.size for blob in manifest.layers)
        layers: list[Layer] = []
        done = 0
        for number, (blob, diff_id) in enumerate(zip(manifest.layers, diff_ids, strict=True), 1):
            what = f"layer {number} of {len(diff_ids)}"
            layer = self._layers.find(diff_id)
            if layer is None:
                report = _LayerReport(progress, what, done, total)
                await self._blobs.fetch(source, blob, report.fetched)
                layer = await self._layers.unpack(self._blobs.path(blob.digest), diff_id, bounds, report.unpacked)
            bounds = Limits(bounds.bytes - layer.content.size, bounds.files - layer.content.files)
            layers.append(layer)
            done += blob.size
        return layers

    @asynccontextmanager
    async def _source(self, reference: AnyReference) -> AsyncGenerator[Source]:
        if isinstance(reference, Reference):
            raise RuntimeUnavailable(
                "registries are not supported yet: use oci:, docker-archive: or tar:", {"fix": "oci:"}
            )
        if reference.transport == "oci":
            yield OciLayout(reference.path)
            return
        async with self._laid_out(reference) as directory:
            yield OciLayout(directory)

    @asynccontextmanager
    async def _laid_out(self, reference: LocalReference) -> AsyncGenerator[Path]:
        directory = self._blobs.partial / f"archive-{secrets.token_hex(8)}"
        lay_out = _LAY_OUT[reference.transport]
        if not reference.path.is_file():
            raise InvalidArgument(f"there is no file {reference.path}")
        try:
            await asyncio.to_thread(lay_out, reference.path, directory, reference.name, self._settings.image_bytes)
            yield directory
        finally:
            await asyncio.to_thread(remove_tree, directory)

    def _load(self, reference: str, digest: str) -> Image | None:
        data = self._blobs.read(digest)
        manifest = None if data is None else parse_manifest(data)
        config_data = None if manifest is None else self._blobs.read(manifest.config.digest)
        if config_data is None:
            return None
        config = parse_document(config_data, Config)
        layers = [layer for diff_id in config.rootfs.diff_ids if (layer := self._layers.find(diff_id)) is not None]
        return _image(reference, digest, config, layers) if len(layers) == len(config.rootfs.diff_ids) else None

    def _make(self) -> None:
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        make_private(self.directory, 0o700)
        for path in (self._locks, self._references, self._uses, self._blobs.directory, self._blobs.partial):
            path.mkdir(exist_ok=True)
        self._layers.directory.mkdir(exist_ok=True)

    def _write_reference(self, reference: str, digest: str) -> None:
        path = self._reference_path(reference)
        fresh = path.with_suffix(f".{secrets.token_hex(4)}")
        fresh.write_text(json.dumps({"reference": reference, "digest": digest}))
        fresh.rename(path)

    def _reference_path(self, reference: str) -> Path:
        return self._references / f"{hashlib.sha256(reference.encode()).hexdigest()}.json"

    def _use_path(self, digest: str) -> Path:
        return self._uses / digest.removeprefix("sha256:")


def _image(reference: str, digest: str, config: Config, layers: list[Layer]) -> Image:
    left_out: dict[str, int] = {}
    for layer in layers:
        for what, count in layer.content.left_out.items():
            left_out[what] = left_out.get(what, 0) + count
    return Image(
        reference=reference,
        digest=digest,
        config=to_image_config(config),
        layers=tuple(layer.directory for layer in layers),
        size=sum(layer.content.size for layer in layers),
        files=sum(layer.content.files for layer in layers),
        left_out=left_out,
    )
