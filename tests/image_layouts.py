"""Images that tests make by themselves: layers as tars, and OCI layouts of them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def file_entry(name: str, content: bytes = b"", **facts: Any) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry of a file."""
    return entry(name, tarfile.REGTYPE, size=len(content), **facts), content


def entry(name: str, kind: bytes, **facts: Any) -> tarfile.TarInfo:
    """Return an entry of any kind; `facts` are fields of TarInfo."""
    made = tarfile.TarInfo(name)
    made.type = kind
    made.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for field_name, value in facts.items():
        setattr(made, field_name, value)
    return made


def make_tar(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return the bytes of a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for one in entries:
            info, content = one if isinstance(one, tuple) else (one, b"")
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@dataclass
class MadeImage:
    """The blobs of an image by digest, and the descriptor of its manifest."""

    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    manifest: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a name leads to: a manifest, or an index."""
    children: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The manifests of an index."""

    def add(self, data: bytes, media_type: str) -> dict[str, Any]:
        """Add a blob; return its descriptor."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def write_layout(self, directory: Path, name: str = "") -> Path:
        """Write an OCI layout of it."""
        blobs = directory / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        for digest, data in self.blobs.items():
            (blobs / digest.removeprefix("sha256:")).write_bytes(data)
        annotations = {"org.opencontainers.image.ref.name": name} if name else {}
        index = {"schemaVersion": 2, "manifests": [{**self.manifest, "annotations": annotations}]}
        (directory / "index.json").write_text(json.dumps(index))
        (directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        return directory


def make_image(
    layers: Sequence[bytes],
    config: Mapping[str, Any] | None = None,
    compress: Callable[[bytes], bytes] = gzip.compress,
    architecture: str = "amd64",
) -> MadeImage:
    """Return an image of some tars."""
    made = MadeImage()
    suffix = "+gzip" if compress is gzip.compress else ""
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    document = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config or {}),
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": made.add(json.dumps(document).encode(), CONFIG),
        "layers": [made.add(compress(layer), f"{LAYER}{suffix}") for layer in layers],
    }
    made.manifest = made.add(json.dumps(manifest).encode(), MANIFEST)
    return made


def make_index(**images: MadeImage) -> MadeImage:
    """Return an image of several platforms, by their architectures."""
    made = MadeImage()
    for architecture, image in images.items():
        made.blobs |= image.blobs
        made.children.append({**image.manifest, "platform": {"os": "linux", "architecture": architecture}})
    made.manifest = made.add(
        json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": made.children}).encode(), INDEX
    )
    return made
