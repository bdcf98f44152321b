"""The removal of images: by name, and of those that were not used for longest."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from sandmesh.errors import InvalidArgument, WrongState
from sandmeshd.images.blobs import Blobs
from sandmeshd.images.documents import ProgramConfig, parse_document, parse_manifest
from sandmeshd.images.layers.layers import Layers
from sandmeshd.images.records import ImageRecords
from sandmeshd.runtime.user_namespaces.removal import remove_tree


@dataclass
class Freed:
    """What was removed: names, and bytes."""

    references: list[str] = field(default_factory=list[str])
    size: int = 0


@dataclass(frozen=True)
class ImageParts:
    """What images consist of: the digests of blobs, and the names of layers' directories."""

    blobs: frozenset[str] = frozenset()
    layers: frozenset[str] = frozenset()


class Collection:
    """Removes images while the store is locked against pulls."""

    def __init__(self, records: ImageRecords, blobs: Blobs, layers: Layers) -> None:
        self._records = records
        self._blobs = blobs
        self._layers = layers

    def size(self) -> int:
        """Return the bytes of all blobs and layers."""
        blobs = sum(path.stat().st_size for path in self._blobs.directory.iterdir())
        return blobs + sum(self._layer_size(path) for path in self._layers.directory.iterdir())

    def remove(self, reference: str) -> Freed:
        """Remove a name, and what belongs to no other.

        Raises:
            WrongState: It is used.
        """
        digest = self._records.find(reference) or ""
        freed = Freed()
        if not self._remove(reference, digest, freed):
            message = f"a sandbox uses the image {reference}: end it first (`sandmesh ls` lists them)"
            raise WrongState(message, {"state": "used"})
        self._sweep(freed)
        return freed

    def prune(self, unused_seconds: float, most_bytes: int | None) -> Freed:
        """Remove unused images, the least recently used first; see `ImageStore.prune`."""
        freed = Freed()
        self._sweep(freed)
        for reference, digest in sorted(self._records.list_all(), key=lambda pair: self._records.used(pair[1])):
            if most_bytes is not None and self.size() <= most_bytes:
                break
            if time.time() - self._records.used(digest) >= unused_seconds and self._remove(reference, digest, freed):
                self._sweep(freed)
        return freed

    def _remove(self, reference: str, digest: str, freed: Freed) -> bool:
        """Remove a name unless its image is used and has no other; return whether it is gone."""
        has_other = any(one == digest and name != reference for name, one in self._records.list_all())
        lock = None if has_other else self._records.lock(digest, shared=False)
        if lock is None and not has_other:
            return False
        self._records.remove(reference)
        freed.references.append(reference)
        if lock is not None:
            os.close(lock)
        return True

    def _sweep(self, freed: Freed) -> None:
        """Remove blobs and layers that belong to no image, and what pulls that were killed have left."""
        kept = ImageParts()
        for digest in self._kept_manifests():
            parts = self._parts(digest)
            kept = ImageParts(kept.blobs | parts.blobs, kept.layers | parts.layers)
        for path in self._blobs.directory.iterdir():
            if f"sha256:{path.name}" not in kept.blobs:
                freed.size += path.stat().st_size
                path.unlink()
        for path in self._blobs.partial.iterdir():
            remove_tree(path) if path.is_dir() else path.unlink()
        for path in self._layers.directory.iterdir():
            if path.name not in kept.layers:
                freed.size += self._layer_size(path)
                self._layers.remove(path.name)

    def _kept_manifests(self) -> set[str]:
        """Return the manifests that have a name, and those without one that a sandbox still uses."""
        kept = {digest for _, digest in self._records.list_all()}
        for digest in self._records.list_used():
            lock = None if digest in kept else self._records.lock(digest, shared=False)
            if lock is None:
                kept.add(digest)
            else:
                self._records.forget(digest)
                os.close(lock)
        return kept

    def _parts(self, digest: str) -> ImageParts:
        data = self._blobs.read(digest)
        if data is None:
            return ImageParts()
        try:
            manifest = parse_manifest(data)
            blobs = frozenset({digest, manifest.config.digest, *(layer.digest for layer in manifest.layers)})
            config = parse_document(self._blobs.read(manifest.config.digest) or b"", ProgramConfig)
        except InvalidArgument:
            return ImageParts(frozenset({digest}))
        diff_ids = (*config.rootfs.diff_ids, self._records.correction(digest))
        return ImageParts(blobs, frozenset(self._layers.name(diff_id) for diff_id in diff_ids))

    def _layer_size(self, path: Path) -> int:
        try:
            size = json.loads((path / "layer.json").read_text())["size"]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return 0
        return int(size)
