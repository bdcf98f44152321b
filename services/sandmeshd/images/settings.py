"""Settings of images."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from sandmeshd.runtime.settings import Settings


class ImageSettings(Settings):
    """Where images are kept, and what they may be."""

    model_config = SettingsConfigDict(env_prefix="SANDMESH_")

    images: Path | None = None
    """Where images are pulled to and unpacked, for all meshes of a user; unset: below the state directory."""

    image_bytes: int = Field(default=32 << 30, ge=1 << 20)
    """The most bytes that an image may have unpacked; larger ones are refused."""

    image_files: int = Field(default=2_000_000, ge=1)
    """The most files that an image may have."""
