"""Images in a file: what `docker save` and `podman save` wrote, an OCI layout in a tar, or the tar of a root.

An archive has its parts in any order: it is laid out as an OCI layout first, in a directory that is removed later.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tarfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from sandmesh.errors import InvalidArgument
from sandmeshd.images.documents import LARGEST_DOCUMENT, MANIFESTS, MOST_LAYERS, ProgramConfig, parse_document
from sandmeshd.images.layers.unpacker import decompressed
from sandmeshd.images.reference import LocalReference
from sandmeshd.images.sources.oci_layout import NAME

OCI_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
OCI_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_MOST_MEMBERS: Final = 10_000
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ArchiveEntry(BaseModel):
    """An entry of an archive's `manifest.json`."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    config: str = Field(alias="Config", max_length=1024)
    tags: list[str] | None = Field(default=None, alias="RepoTags")
    layers: list[str] = Field(alias="Layers", max_length=MOST_LAYERS)


class SavedImages(BaseModel):
    """All entries of it."""

    images: list[ArchiveEntry] = Field(max_length=1024)


def machine_architecture() -> str:
    """Return this machine's architecture by the name that images have."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def recognize(path: Path) -> LocalReference:
    """Return what names an image in a file or directory, by what is in it.

    Raises:
        InvalidArgument: There is nothing, or it is a directory that is not an OCI layout.
    """
    if path.is_dir() and (path / "index.json").is_file():
        return LocalReference("oci", path.absolute())
    if not path.is_file():
        raise InvalidArgument(f"{path} is neither a file nor an OCI layout (a directory with index.json)")
    try:
        with tarfile.open(path) as archive:
            names = {str(PurePosixPath(member.name)) for member in islice(archive, _MOST_MEMBERS)}
    except (tarfile.TarError, EOFError, zlib.error):
        # Also what only the unpacker reads, such as zstd.
        names = set[str]()
    known = {"manifest.json": "docker-archive", "index.json": "oci-archive"}
    transport = next((one for name, one in known.items() if name in names), "tar")
    return LocalReference(transport, path.absolute())


class Layout:
    """A directory that becomes an OCI layout of one image."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._blobs = directory / "blobs" / "sha256"
        self._blobs.mkdir(parents=True)

    def add(self, file: IO[bytes], most: int, media_type: str) -> dict[str, Any]:
        """Copy a blob of at most that many bytes; return its descriptor."""
        digest, size = hashlib.sha256(), 0
        fresh = self._directory / "new"
        with fresh.open("wb") as out:
            while data := file.read(1 << 20):
                size += len(data)
                if size > most:
                    raise InvalidArgument(f"a part of the archive is larger than {most} bytes")
                digest.update(data)
                out.write(data)
        fresh.rename(self._blobs / digest.hexdigest())
        return {"mediaType": media_type, "digest": f"sha256:{digest.hexdigest()}", "size": size}

    def add_json(self, value: object, media_type: str) -> dict[str, Any]:
        """Add a document; return its descriptor."""
        data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self._blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def finish(self, config: dict[str, Any], layers: list[dict[str, Any]], name: str = "") -> None:
        """Write the manifest and the index, in which the image has a name or none."""
        manifest = {"schemaVersion": 2, "mediaType": MANIFESTS[0], "config": config, "layers": layers}
        described = self.add_json(manifest, MANIFESTS[0])
        index = {"schemaVersion": 2, "manifests": [{**described, "annotations": {NAME: name} if name else {}}]}
        (self._directory / "index.json").write_text(json.dumps(index))


def lay_out_oci_archive(file: Path, directory: Path, name: str, most: int) -> None:
    """Unpack an OCI layout from a tar, only its blobs and index."""
    del name
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    with _members(file) as members:
        for member, content in members.items():
            path = PurePosixPath(member)
            if path.parts[:2] == ("blobs", "sha256") and len(path.parts) == 3:
                _copy(content(), blobs / path.name, most)
            elif member == "index.json":
                _copy(content(), directory / member, LARGEST_DOCUMENT)


def lay_out_docker_archive(file: Path, directory: Path, name: str, most: int) -> None:
    """Make an OCI layout of what `docker save` wrote: its image of that name, or its only one."""
    with _members(file) as members:
        saved = _choose(_member(members, "manifest.json").read(LARGEST_DOCUMENT), name, file)
        layout = Layout(directory)
        config = _member(members, saved.config).read(LARGEST_DOCUMENT + 1)
        diff_ids = parse_document(config, ProgramConfig).rootfs.diff_ids
        layers = [layout.add(_member(members, path), most, OCI_LAYER) for path in saved.layers]
        if len(diff_ids) != len(layers):
            counts = f"{len(layers)} layers, and its configuration {len(diff_ids)}"
            raise InvalidArgument(f"{file} is damaged: it has {counts}")
        layout.finish(layout.add(BytesIO(config), LARGEST_DOCUMENT, OCI_CONFIG), layers, name)


def lay_out_root(file: Path, directory: Path, name: str, most: int) -> None:
    """Make an OCI layout of one layer from the tar of a root file system, with or without compression."""
    del name
    with file.open("rb") as opened:
        content, digest, size = decompressed(opened), hashlib.sha256(), 0
        while data := content.read(1 << 20):
            size += len(data)
            if size > most:
                raise InvalidArgument(f"{file} is larger than {most} bytes (SANDMESH_IMAGE_BYTES)")
            digest.update(data)
        opened.seek(0)
        layout = Layout(directory)
        layer = layout.add(opened, most, OCI_LAYER)
    config = {
        "architecture": machine_architecture(),
        "os": "linux",
        "config": {"Env": [_PATH], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
        "created": datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(),
    }
    layout.finish(layout.add_json(config, OCI_CONFIG), [layer])


Members = dict[str, Callable[[], IO[bytes]]]


@contextmanager
def _members(file: Path) -> Generator[Members]:
    """Yield the files of an archive by name; links within it are followed, as older ones of Docker have some."""
    try:
        with tarfile.open(file) as archive:
            found: Members = {}
            for count, member in enumerate(archive):
                if count > _MOST_MEMBERS:
                    raise InvalidArgument(f"{file} has more than {_MOST_MEMBERS} parts")
                if not member.isdir():
                    found[str(PurePosixPath(member.name))] = partial(_opened, archive, member)
            yield found
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InvalidArgument(f"{file} cannot be read as an image's archive: {error}") from None


def _opened(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    try:
        opened = archive.extractfile(member)
    except KeyError:
        opened = None
    if opened is None:
        raise InvalidArgument(f"{member.name[:200]!r} of the archive is not a file")
    return opened


def _member(members: Members, name: str) -> IO[bytes]:
    if name not in members:
        raise InvalidArgument(f"the archive lacks {name[:200]!r}: it is not what `docker save` writes")
    return members[name]()


def _choose(manifest: bytes, name: str, file: Path) -> ArchiveEntry:
    saved = parse_document(b'{"images":' + manifest + b"}", SavedImages).images
    named = [image for image in saved if not name or name in (image.tags or [])]
    if len(named) != 1:
        known = ", ".join(tag for one in saved for tag in one.tags or []) or "none by name"
        raise InvalidArgument(f"{file} has not one image named {name!r}: name one of {known}")
    return named[0]


def _copy(content: IO[bytes], target: Path, most: int) -> None:
    left = most
    with target.open("wb") as out:
        while data := content.read(1 << 20):
            left -= len(data)
            if left < 0:
                raise InvalidArgument(f"a part of the archive is larger than {most} bytes")
            out.write(data)
