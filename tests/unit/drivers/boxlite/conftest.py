"""A driver with a home and an image of its own, on BoxLite's real library."""

from __future__ import annotations

import io
import json
import secrets
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import SecretStr

from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.user_namespaces.removal import remove_tree


def save_image(archive: Path, program: bytes = b"#!/bin/sh\n") -> bytes:
    """Write an archive as `docker save` does, of an image with one layer; return the layer."""
    layer = tarball({"bin/sh": program})
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
    }
    config = json.dumps(described).encode()
    name = f"{sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": ["sandmesh/base:latest"], "Layers": ["one/layer.tar"]}]
    archive.write_bytes(tarball({name: config, "one/layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}))
    return layer


def tarball(files: dict[str, bytes]) -> bytes:
    """Return an archive with files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[MeshPaths]:
    made = MeshPaths(f"boxes-{secrets.token_hex(5)}", tmp_path / "s", tmp_path / "r")
    made.make()
    yield made
    for folder in (made.state, made.runtime):
        remove_tree(folder)


@pytest.fixture
def settings(paths: MeshPaths, tmp_path: Path) -> BoxliteSettings:
    images = tmp_path / "images"
    images.mkdir()
    save_image(images / "base.tar")
    secret = EgressSettings(mesh_secret=SecretStr("the secret of a mesh of the tests"))
    return BoxliteSettings(paths=paths, home=tmp_path / "home", images=images, egress=secret, start_timeout=60)
