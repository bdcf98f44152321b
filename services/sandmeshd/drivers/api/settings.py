"""Settings that every driver has; a driver's own class derives from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Final

from pydantic import ByteSize, Field

from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.runtime.paths import LOCAL_NODE, MeshPaths
from sandmeshd.runtime.settings import Settings

SNAPSHOT_BYTES: Final = 2 << 30


class DriverSettings(Settings):
    """Settings of one driver of one mesh on one node.

    A derived class adds the driver's own fields, with an `env_prefix` that begins with SANDMESH_ and that no other
    driver has, as `class TinySettings(DriverSettings, env_prefix="SANDMESH_TINY_")`.
    """

    keeps_directories: ClassVar[bool] = False
    """Whether workspaces are directories of the node, for which `workspaces_directory` may name a place."""

    paths: MeshPaths
    """The mesh's directories; they must exist."""

    node_id: str = LOCAL_NODE
    """The node that the driver is."""

    ends_with_driver: bool = False
    """Sandboxes end with the driver's process and are deleted when it closes."""

    own_workspaces: bool = False
    """Without roots, any directory of the driver's own user may be a workspace: the mesh is a program's own."""

    stands_by: bool = False
    """What makes sandboxes start quickly is started with the driver, not by the first create."""

    readonly_mounts: dict[str, str] = Field(default_factory=dict, validation_alias="SANDMESH_READONLY_MOUNTS")
    """Files and directories of the host that every sandbox sees read-only, by path, as {"/opt/data": "/data"}."""

    workspace_roots: tuple[str, ...] = Field(default=(), validation_alias="SANDMESH_WORKSPACE_ROOTS")
    """Directories of the host whose subdirectories sandboxes may have as workspaces, as ["/srv/data"]."""

    volumes: Path | None = Field(default=None, validation_alias="SANDMESH_VOLUMES")
    """Where users' volumes are: on every node the same directory, as of a network's file system; none, where the mesh
    has one node: in the storage of workspaces, without one below the state directory."""

    snapshot_bytes: ByteSize = Field(default=ByteSize(SNAPSHOT_BYTES), gt=0, validation_alias="SANDMESH_SNAPSHOT_LIMIT")
    """The largest snapshot that is taken, as 2GiB."""

    egress: EgressSettings = EgressSettings()
    """What sandboxes may reach at all, and how."""

    @property
    def volumes_root(self) -> Path | None:
        """Where volumes of this node's sandboxes are; None where nothing says that other nodes have the same."""
        if self.volumes is not None:
            return self.paths.state_root / self.volumes / self.paths.mesh_id
        return self.paths.state / "volumes" if self.node_id == LOCAL_NODE else None

    @property
    def volumes_uid(self) -> int:
        """The uid on this machine of user code that has volumes; its gid is the same number."""
        return os.geteuid()


def check_no_host_files(settings: DriverSettings, where: str) -> None:
    """Check that settings name no files of this machine, for a driver whose sandboxes are elsewhere.

    Raises:
        InvalidArgument: They do.
    """
    names = [name for name in ("readonly_mounts", "workspace_roots", "volumes") if getattr(settings, name)]
    if names:
        listed = " and ".join(f"SANDMESH_{name.upper()}" for name in names)
        fix = f"unset {listed}"
        message = f"{where} does not see this machine's files, which {listed} names: {fix}"
        raise InvalidArgument(message, {"setting": names[0], "fix": fix})
