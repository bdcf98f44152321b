"""What an image can be built for: the engine's own machine, or a platform that is named."""

from __future__ import annotations

from typing import Final

from sandmesh.errors import InvalidArgument

ARCHITECTURES: Final = {"linux/amd64": "amd64", "linux/arm64": "arm64"}
"""By platform, as Debian, BuildKit and registries call them; all that images are made of is there for these."""

EMULATE: Final = "apt-get install qemu-user-static binfmt-support"

_FOREIGN: Final = ("exec format error", "can neither be executed natively nor via qemu user emulation")


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
