"""The platforms that images can be built for: the engine's own, or a named one."""

from __future__ import annotations

import hashlib
import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument

ARCHITECTURES: Final = {"linux/amd64": "amd64", "linux/arm64": "arm64"}
"""By platform, as Debian, BuildKit and registries call them; all parts of the images exist for these."""

EMULATE: Final = "apt-get install qemu-user-static binfmt-support arch-test"

_FOREIGN: Final = (
    "exec format error",
    "install arch-test",
    "can neither be executed natively nor via qemu user emulation",
)


def check_platform(platform: str) -> None:
    """Check that images can be built for a platform; empty is the engine's own.

    Raises:
        InvalidArgument: They cannot.
    """
    if platform and platform not in ARCHITECTURES:
        message = f"images cannot be built for {platform!r}: name {' or '.join(ARCHITECTURES)}"
        raise InvalidArgument(message, {"field": "platform"})


def named_for(image: str, platform: str) -> str:
    """Return the name of an image for a platform, with a separate tag, so that the engine's own stays."""
    return f"{image}-{ARCHITECTURES[platform]}" if platform else image


def is_foreign(output: str) -> bool:
    """Return whether a build's last lines show that it failed for another processor's programs."""
    return any(mark in output.lower() for mark in _FOREIGN)


def archive_image(root: Path, name: str, platform: str) -> Path:
    """Make an image for a platform from a tar of its files; return the archive beside it, for `docker load`.

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
