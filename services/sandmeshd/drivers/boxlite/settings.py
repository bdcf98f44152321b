"""Settings of the boxlite driver."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from sandmeshd.drivers.api.settings import DriverSettings


class BoxliteSettings(DriverSettings, env_prefix="SANDMESH_BOXLITE_"):
    """Settings of the boxlite driver of one mesh."""

    home: Path | None = None
    """Where BoxLite keeps its boxes; one driver at a time uses it. By default `boxlite` in the mesh's directory."""

    images: Path | None = None
    """Where images are: by name an OCI layout, or NAME.tar of `docker save`; by default `layouts` in the home."""

    cpus: int = Field(default=1, ge=1, le=64)
    """The processors of a sandbox whose creator states none."""

    memory: int = Field(default=1024, ge=256)
    """The MiB of a sandbox whose creator states none."""

    start_timeout: float = Field(default=120.0, gt=0)
    """Seconds that a sandbox may take to start."""

    @property
    def home_directory(self) -> Path:
        """Where BoxLite keeps its boxes."""
        return self.home or self.paths.state / "boxlite"

    @property
    def image_directory(self) -> Path:
        """Where images are."""
        return self.images or self.home_directory / "layouts"
