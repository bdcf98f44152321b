"""An image that is here: what its configuration says, and the directories of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandmeshd.images.documents import ImageProcess, ProgramConfig
from sandmeshd.images.layers.layers import Layer


@dataclass(frozen=True)
class ImageConfig:
    """What an image says about the processes that run in it."""

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    working_dir: str = "/"
    user: str = ""
    """A name or number, with its group after a colon or without; empty: root."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    exposed_ports: tuple[str, ...] = ()
    """Like `80/tcp`."""
    volumes: tuple[str, ...] = ()
    """The directories that its VOLUME names."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    architecture: str = ""
    os: str = ""


@dataclass(frozen=True)
class PulledImage:
    """An image that was pulled: its layers stay as they are as long as a lock of it is held (`ImageStore.hold`)."""

    reference: str
    digest: str
    """Of the manifest, for this platform."""
    config: ImageConfig
    layers: tuple[Path, ...]
    """A directory each, lowest first: lower directories for overlayfs with `userxattr`, which nothing changes.

    Owners in them: for a mesh of root the image's own numbers, for an ordinary user's the subordinate ids, where the
    first is the image's root. Their parents are closed to all others.
    """
    size: int = 0
    """The bytes of all files."""
    files: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often something of the image was left out, such as device nodes."""


def to_image_config(document: ProgramConfig) -> ImageConfig:
    """Convert the configuration as registries have it."""
    process = document.config or ImageProcess()
    pairs = (entry.partition("=") for entry in process.env)
    return ImageConfig(
        env={name: value for name, equals, value in pairs if name and equals},
        working_dir=process.working_dir or "/",
        user=process.user or "",
        entrypoint=process.entrypoint,
        cmd=process.cmd,
        exposed_ports=tuple(sorted(process.ports)),
        volumes=tuple(sorted(process.volumes)),
        labels=dict(process.labels),
        architecture=document.architecture,
        os=document.os,
    )


def to_image(reference: str, digest: str, config: ProgramConfig, layers: Sequence[Layer]) -> PulledImage:
    """Return an image of its parts."""
    left_out: dict[str, int] = {}
    for layer in layers:
        for what, count in layer.content.left_out.items():
            left_out[what] = left_out.get(what, 0) + count
    return PulledImage(
        reference=reference,
        digest=digest,
        config=to_image_config(config),
        layers=tuple(layer.directory for layer in layers),
        size=sum(layer.content.size for layer in layers),
        files=sum(layer.content.files for layer in layers),
        left_out=left_out,
    )
