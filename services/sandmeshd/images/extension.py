"""Images made of others here: another configuration, and one more layer."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandmesh.errors import InvalidArgument
from sandmeshd.images.blobs import Blobs
from sandmeshd.images.documents import (
    MANIFESTS,
    MOST_LAYERS,
    Descriptor,
    Manifest,
    ProgramConfig,
    parse_document,
    parse_manifest,
)
from sandmeshd.images.image import PulledImage, to_image
from sandmeshd.images.layers.implied import correcting_layer
from sandmeshd.images.layers.layers import Layer, Layers
from sandmeshd.images.layers.unpack import LayerLimits
from sandmeshd.images.records import ImageRecords
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.sources.archives import OCI_CONFIG, OCI_LAYER, machine_architecture


@dataclass(frozen=True)
class NewLayer:
    """A layer that was made here: its tar, compressed by gzip."""

    file: Path
    diff_id: str
    digest: str
    size: int


async def correct(blobs: Blobs, layers: Layers, found: list[Layer]) -> Layer | None:
    """Return the layer that gives directories of others their owners and modes, None where none is needed.

    Raises:
        InvalidArgument: A layer has files below a link of a lower one.
    """
    tar = correcting_layer(found)
    if not tar:
        return None
    diff_id = f"sha256:{hashlib.sha256(tar).hexdigest()}"
    blobs.add(tar, diff_id)
    limits = LayerLimits(len(tar) + 1, len(tar))
    return await layers.unpack(blobs.path(diff_id), diff_id, limits, lambda read: None)


class Extension:
    """Makes images of others while the store is locked against removals."""

    def __init__(self, settings: ImageSettings, records: ImageRecords, blobs: Blobs, layers: Layers) -> None:
        self._settings = settings
        self._records = records
        self._blobs = blobs
        self._layers = layers

    def read_config(self, image: PulledImage | None) -> dict[str, Any]:
        """Return an image's configuration as registries have it; without an image that of an empty one."""
        if image is None:
            return {"architecture": machine_architecture(), "os": "linux", "config": {}, "rootfs": {"type": "layers"}}
        data = self._blobs.read(self._manifest(image).config.digest)
        config: dict[str, Any] = json.loads(data or b"{}")
        return config

    def diff_ids(self, image: PulledImage | None) -> tuple[str, ...]:
        """Return the digests of an image's layers, without their compression."""
        return (
            ()
            if image is None
            else parse_document(json.dumps(self.read_config(image)).encode(), ProgramConfig).rootfs.diff_ids
        )

    async def extend(
        self, name: str, base: PulledImage | None, config: Mapping[str, Any], layer: NewLayer | None
    ) -> PulledImage:
        """Return an image, under a whole name, with another configuration and perhaps one more layer.

        Raises:
            InvalidArgument: It has too many layers.
            TooLarge: It is larger than the settings allow.
        """
        blobs = [] if base is None else list(self._manifest(base).layers)
        diff_ids = list(self.diff_ids(base))
        found = [one for diff_id in diff_ids if (one := self._layers.find(diff_id)) is not None]
        if layer is not None:
            found.append(await self._add(layer, base))
            media_type = f"{OCI_LAYER}+gzip"
            blobs.append(Descriptor(media_type=media_type, digest=layer.digest, size=layer.size))
            diff_ids.append(layer.diff_id)
        if len(diff_ids) > MOST_LAYERS:
            raise InvalidArgument(f"the image has more than {MOST_LAYERS} layers: join steps (RUN a && b)")
        whole = {**config, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
        # It says of each layer where it came from, which is no longer so.
        whole.pop("history", None)
        digest = self._add_documents(whole, blobs)
        correction = await correct(self._blobs, self._layers, found)
        self._records.write(name, digest, correction.content.diff_id if correction else "")
        document = parse_document(json.dumps(whole).encode(), ProgramConfig)
        return to_image(name, digest, document, [*found, *([correction] if correction else [])])

    async def _add(self, layer: NewLayer, base: PulledImage | None) -> Layer:
        bounds = LayerLimits(
            self._settings.image_bytes - (base.size if base else 0),
            self._settings.image_files - (base.files if base else 0),
        )
        target = self._blobs.path(layer.digest)
        if not target.exists():
            shutil.move(layer.file, target)
        return await self._layers.unpack(target, layer.diff_id, bounds, lambda read: None)

    def _add_documents(self, config: Mapping[str, Any], layers: list[Descriptor]) -> str:
        described = self._add_json(config, OCI_CONFIG)
        parts = [part.model_dump(by_alias=True, include={"media_type", "digest", "size"}) for part in layers]
        manifest = {"schemaVersion": 2, "mediaType": MANIFESTS[0], "config": described, "layers": parts}
        return str(self._add_json(manifest, MANIFESTS[0])["digest"])

    def _add_json(self, value: object, media_type: str) -> dict[str, Any]:
        data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self._blobs.add(data, digest)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def _manifest(self, image: PulledImage) -> Manifest:
        return parse_manifest(self._blobs.read(image.digest) or b"")
