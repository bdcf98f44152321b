"""What an image can be built for: the engine's own machine, or a platform that is named."""

from __future__ import annotations

import hashlib
import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument

ARCHITECTURES: Final = {"linux/amd64": "amd64", "linux/arm64": "arm64"}
"""By platform, as Debian, BuildKit and registries call them; all that images are made of is there for these."""

EMULATE: Final = "apt-get install qemu-user-static binfmt-support arch-test"

_FOREIGN: Final = (
    "exec format error",
    "install arch-test",
    "can neither be executed natively nor via qemu user emulation",
)


def check_platform(platform: str) -> None:
    """Check that images can be built for a platform; none is the engine's own.

    Raises:
        InvalidArgument: They cannot.
    """
    if platform and platform not in ARCHITECTURES:
        message = f"images cannot be built for {platform!r}: give {' or '.join(ARCHITECTURES)}"
        raise InvalidArgument(message, {"field": "platform"})


def named_for(image: str, platform: str) -> str:
    """Give the name of an image for a platform: with a tag of its own, so that this engine's own stays."""
    return f"{image}-{ARCHITECTURES[platform]}" if platform else image


def is_foreign(words: str) -> bool:
    """Say whether a build failed for want of a processor, by its last words."""
    return any(mark in words.lower() for mark in _FOREIGN)


def archive_image(root: Path, name: str, platform: str) -> Path:
    """Make an image for a platform of a tar with its files; give the archive beside it, as `docker load` takes them.

    The format is https://github.com/moby/docker-image-spec/blob/v1.2.0/v1.2.md#combined-image-json--filesystem-changeset-format
    """
    with root.open("rb") as file:
        layer = hashlib.file_digest(file, "sha256").hexdigest()
    system, architecture = platform.split("/")
    files = {"type": "layers", "diff_ids": [f"sha256:{layer}"]}
    config = {"architecture": architecture, "os": system, "config": {"Cmd": ["/bin/sh"]}, "rootfs": files}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    archive = root.with_name("image.tar")
    with tarfile.open(archive, "w") as image:
        image.add(root, "layer.tar")
        for part, content in (("config.json", config), ("manifest.json", manifest)):
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(part)
            entry.size = len(data)
            image.addfile(entry, BytesIO(data))
    return archive
