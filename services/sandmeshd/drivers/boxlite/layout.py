"""Images as BoxLite takes them without a registry: OCI layouts, made of what `docker save` wrote."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, cast

from sandmesh.errors import TemplateBuildFailed

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_CHUNK: Final = 1 << 20
_PATH: Final = "blobs/sha256"
SOURCE: Final = "source"
"""The file of a layout that says which archive it was made of."""


def layout_of(folder: Path, name: str) -> Path:
    """Return the OCI layout of an image in a folder, made of its archive where that is newer.

    Raises:
        TemplateBuildFailed: There is neither, or the archive is none of `docker save`; `facts["fix"]` says what to do.
    """
    layout, archive = folder / name, folder / f"{name}.tar"
    if not archive.exists():
        if (layout / "oci-layout").exists():
            return layout
        fix = f"docker save sandmesh/{name} -o {archive}, on a machine with an engine and this image"
        raise TemplateBuildFailed(f"there is no image {name} for BoxLite: {fix}", {"fix": fix})
    stamp = f"{archive.stat().st_size} {archive.stat().st_mtime_ns}"
    source = layout / SOURCE
    if not (source.exists() and source.read_text() == stamp):
        _replace(archive, layout, stamp)
    return layout


def _replace(archive: Path, layout: Path, stamp: str) -> None:
    staged = Path(tempfile.mkdtemp(prefix=f".{layout.name}-", dir=layout.parent))
    try:
        convert(archive, staged)
        (staged / SOURCE).write_text(stamp)
        staged.chmod(0o755)
        shutil.rmtree(layout, ignore_errors=True)
        staged.rename(layout)
    except (OSError, tarfile.TarError, ValueError, KeyError, IndexError, TypeError) as error:
        shutil.rmtree(staged, ignore_errors=True)
        fix = f"write {archive} with docker save once more"
        detail = str(error) or type(error).__name__
        raise TemplateBuildFailed(f"{archive} is not an image of docker save ({detail}): {fix}", {"fix": fix}) from None


def convert(archive: Path, layout: Path) -> None:
    """Write the image of a `docker save` archive as an OCI layout into a directory; layers are not compressed.

    Raises:
        OSError, tarfile.TarError, ValueError, KeyError: It is none.
    """
    (layout / _PATH).mkdir(parents=True)
    with tarfile.open(archive) as saved:
        described: list[Mapping[str, Any]] = json.loads(_member(saved, "manifest.json").read())
        entry = described[0]
        config = _member(saved, str(entry["Config"])).read()
        layers = [_write(layout, _member(saved, name), _LAYER) for name in cast("list[str]", entry["Layers"])]
    known = [layer["digest"] for layer in layers]
    if json.loads(config)["rootfs"]["diff_ids"] != known:
        raise ValueError("its layers are not those of its configuration")
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _put(layout, config, _CONFIG),
        "layers": layers,
    }
    index = {"schemaVersion": 2, "manifests": [_put(layout, json.dumps(manifest).encode(), _MANIFEST)]}
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


def _member(saved: tarfile.TarFile, name: str) -> IO[bytes]:
    found = saved.extractfile(name)
    if found is None:
        raise ValueError(f"{name} is not a file")
    return found


def _write(layout: Path, source: IO[bytes], kind: str) -> dict[str, Any]:
    """Write a layer as it is without compression: that is what its configuration has the hash of."""
    begin = source.read(2)
    source.seek(0)
    plain = cast("IO[bytes]", gzip.GzipFile(fileobj=source)) if begin == b"\x1f\x8b" else source
    digest, size = hashlib.sha256(), 0
    staged = layout / _PATH / ".layer"
    with staged.open("wb") as target:
        while data := plain.read(_CHUNK):
            digest.update(data)
            size += len(data)
            target.write(data)
    staged.rename(layout / _PATH / digest.hexdigest())
    return {"mediaType": kind, "digest": f"sha256:{digest.hexdigest()}", "size": size}


def _put(layout: Path, data: bytes, kind: str) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    (layout / _PATH / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}
