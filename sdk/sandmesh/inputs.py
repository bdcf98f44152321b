"""What a sandbox can be asked to be, beyond its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from sandmesh.errors import InvalidArgument


class SandboxType(StrEnum):
    """Types of sandboxes: those that every mesh has, and those that this program added. Each is its name as a text."""

    BASE = "base"
    FILESYSTEM = "filesystem"
    DUMMY = "dummy"

    @classmethod
    def add_member(cls, name: str, value: str | None = None) -> SandboxType:
        """Add a member at run time; without a value it is the name in lower case. One that is there stays as it is.

        Raises:
            InvalidArgument: The name or the value is another member's.
        """
        value = name.lower() if value is None else value
        found = cls._value2member_map_.get(value) or cls._member_map_.get(name)
        if found is not None:
            if (found.name, found.value) != (name, value):
                message = f"SandboxType.{name} cannot be {value!r}: SandboxType.{found.name} is {found.value!r}"
                raise InvalidArgument(message, {"sandbox_type": value})
            return cast("SandboxType", found)
        # What enum does for a member of its class's body; the standard library has no call for it.
        member = str.__new__(cls, value)
        member._name_, member._value_ = name, value
        setattr(cls, name, member)
        cls._member_map_[name] = cls._value2member_map_[value] = member
        cls._member_names_.append(name)
        return member

    @classmethod
    def known(cls, value: str) -> SandboxType | str:
        """Give the member of a value, or the value itself where there is none."""
        return cast("SandboxType | str", cls._value2member_map_.get(value, value))


@dataclass(frozen=True)
class Limits:
    """What a sandbox may use. Each is a requirement: a runtime that cannot enforce one refuses the sandbox.

    None is the runtime's default. A size is a number of bytes or a text like "512MiB" or "1.5 GB".
    """

    memory: int | str | None = None
    """Memory of all processes of user code together, with what is in /tmp."""

    cpus: float | None = None
    """Processor time, in cores."""

    pids: int | None = None
    """Processes and threads."""

    file_size: int | str | None = None
    """The largest single file."""

    disk: int | str | None = None
    """The workspace, all its files together."""


@dataclass(frozen=True)
class NetworkGrant:
    """What a sandbox may reach: nothing, public addresses, or the hosts that are listed."""

    mode: Literal["none", "public", "hosts"]
    hosts: tuple[str, ...] = ()
    """Hosts: names, addresses, `*.` and a domain, or the preset `packages`; each perhaps with a port (`host:8443`).

    With "public" they are allowed beside the public ones. A host that is listed by its exact name or address may be a
    private one.
    """


@dataclass(frozen=True)
class Snapshot:
    """What a sandbox's workspace and home were at one moment."""

    snapshot_id: str
    sandbox_id: str
    """The sandbox that it was taken of."""
    sandbox_type: str
    """That sandbox's type; only sandboxes of it begin with the snapshot."""
    size_bytes: int
    checksum: str
    """As "sha256:..."; a snapshot that is not what it was is refused (SnapshotDamaged)."""
    created: datetime


NetworkInput = NetworkGrant | Literal["none", "public", "packages"] | Sequence[str] | Mapping[str, Any]
LimitsInput = Limits | Mapping[str, Any]


class Options(TypedDict, total=False):
    """What the constructors take by keyword only."""

    ca_cert: str | Path | None
    """A file of certificates, in PEM, that the mesh's must be signed by; None: SANDMESH_CA_FILE, else the system's."""

    env: Mapping[str, str] | None
    """Environment variables of user code."""

    limits: LimitsInput | None
    """What it may use: Limits, or a dict of its fields."""

    labels: Mapping[str, str] | None
    """The caller's labels: keys of 1 to 63 characters, values of at most 255."""

    network: NetworkInput | None
    """What it may reach: "none", "public", "packages", a list of hosts (and "public"), or NetworkGrant.

    None: the template's default.
    """

    snapshot: Snapshot | str | None
    """The snapshot, or its id, that the workspace and home begin with; None: they begin empty."""

    workspace_dir: str | Path | None
    """The directory of the mesh's machine that is the workspace; nothing in it is removed with the sandbox.

    A relative path is one of this program's. A private mesh takes what this user owns, others what they allow.
    """

    template: str | None
    """The template, where it is not named as the type."""

    idle_timeout: float | None
    """Seconds without a call or anything open until the sandbox is given back, whoever renews it; None: never."""

    ttl: float | None
    """Seconds until the sandbox is given back by itself when this program stops renewing it; None: the mesh's own."""
