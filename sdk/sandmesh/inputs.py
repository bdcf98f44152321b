"""Inputs of the constructors: sandbox types, limits, network grants, snapshots and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, cast

from sandmesh.errors import InvalidArgument
from sandmesh.shared.sandbox_types import SANDBOX_TYPES


class SandboxType(StrEnum):
    """Sandbox types: those that every mesh has, and those that this program added. Each equals its name as a str."""

    BASE = "base"
    FILESYSTEM = "filesystem"
    BROWSER = "browser"
    DUMMY = "dummy"

    @classmethod
    def add_member(cls, name: str, value: str | None = None) -> SandboxType:
        """Add a member at run time, by default with the name in lower case as its value; return an existing one.

        Raises:
            InvalidArgument: The name or the value belongs to another member.
        """
        value = name.lower() if value is None else value
        found = cls._value2member_map_.get(value) or cls._member_map_.get(name)
        if found is not None:
            if (found.name, found.value) != (name, value):
                message = f"SandboxType.{name} cannot be {value!r}: SandboxType.{found.name} is {found.value!r}"
                raise InvalidArgument(message, {"sandbox_type": value})
            return cast("SandboxType", found)
        # What enum does for a member in the class body; the standard library has no function for it.
        member = str.__new__(cls, value)
        member._name_, member._value_ = name, value
        setattr(cls, name, member)
        cls._member_map_[name] = cls._value2member_map_[value] = member
        cls._member_names_.append(name)
        return member

    @classmethod
    def known(cls, value: str) -> SandboxType | str:
        """Return the member of a value, or the value itself if there is none."""
        return cast("SandboxType | str", cls._value2member_map_.get(value, value))

    @classmethod
    def get_builtin_members(cls) -> list[SandboxType]:
        """Return the types that every mesh has."""
        return [member for member in cls if member.is_builtin()]

    @classmethod
    def get_dynamic_members(cls) -> list[SandboxType]:
        """Return the types that this program added."""
        return [member for member in cls if not member.is_builtin()]

    def is_builtin(self) -> bool:
        """Return whether every mesh has this type."""
        return self.value in SANDBOX_TYPES


for _name in SANDBOX_TYPES:
    SandboxType.add_member(_name.upper().replace("-", "_"), _name)


@dataclass(frozen=True)
class Limits:
    """The resource limits of a sandbox. Each is a requirement: a runtime that cannot enforce one refuses the sandbox.

    None is the runtime's default. A size is a number of bytes or a str like "512MiB" or "1.5 GB".
    """

    memory: int | str | None = None
    """Memory of all processes of user code together, including the files in /tmp."""

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
    """What a sandbox may connect to: nothing, public addresses, or the listed hosts."""

    mode: Literal["none", "public", "hosts"]
    hosts: tuple[str, ...] = ()
    """Names, addresses, `*.` and a domain, or the preset `packages`; each optionally with a port (`host:8443`).

    With "public" they are allowed in addition to the public ones. A host listed by its exact name may be in a private
    network; loopback, link-local and metadata addresses need the address itself.
    """

    only_public: bool = False
    """Listed hosts must have public addresses, too; always so where the token does not allow private networks."""


@dataclass(frozen=True)
class Snapshot:
    """A copy of a sandbox's workspace and home."""

    snapshot_id: str
    sandbox_id: str
    """The sandbox that it was taken from."""
    sandbox_type: str
    """That sandbox's type; only sandboxes of this type can start from the snapshot."""
    size_bytes: int
    checksum: str
    """As "sha256:..."; a snapshot that does not match it is refused (SnapshotDamaged)."""
    created: datetime
    expires: datetime | None = None
    """When it deletes itself; None: it stays until it is deleted."""


@dataclass(frozen=True)
class Secret:
    """A secret of a sandbox, whose value never enters it.

    Inside, the environment variable has a placeholder. The egress proxy outside puts the value into the headers of
    HTTPS requests to the hosts. Without `value` it is a secret that the mesh stores: `name`, else the variable's name.
    """

    hosts: Sequence[str]
    """The hosts that get the value, as in a network grant that must allow them; without a port it is 443."""

    value: str | None = field(default=None, repr=False)

    name: str | None = None
    """The stored secret, which may be for more hosts."""


SecretInput = Secret | Mapping[str, Any]
NetworkInput = NetworkGrant | Literal["none", "public", "packages"] | Sequence[str] | Mapping[str, Any]
LimitsInput = Limits | Mapping[str, Any]


PauseMode: TypeAlias = Literal["memory", "files", "checkpoint"]
"""What a pause keeps: memory and files; files only, as processes end; or everything, with memory on disk."""


class LifetimeOptions(TypedDict, total=False):
    """How long sandboxes live, as `SandboxService` and every box take it."""

    ttl: float | None
    """Seconds until the sandbox is released once this program stops renewing it; None: the mesh's default."""

    idle_timeout: float | None
    """Seconds without calls or open streams until `on_idle` is done, even if it is renewed; None: never."""

    on_idle: Literal["release", "pause"] | None
    """What is done with the sandbox after `idle_timeout`; None: the mesh's default, which is to release it.

    A paused one keeps memory and files, and is released when its lease ends.
    """

    auto_resume: bool
    """Whether requests resume the sandbox while it is paused: calls, files, ports, views. By default they do."""


class DescribedImage(Protocol):
    """What `sandmesh.Image` is: an image that a program describes."""

    @property
    def dockerfile(self) -> str:
        """The Dockerfile that is built."""
        ...


class Options(LifetimeOptions, total=False):
    """Keyword-only arguments of the constructors."""

    ca_cert: str | Path | None
    """A PEM file of certificates that must sign the mesh's own; None: SANDMESH_CA_FILE, else the system's."""

    env: Mapping[str, str] | None
    """Environment variables of user code."""

    limits: LimitsInput | None
    """Its resource limits: Limits, or a dict of its fields."""

    labels: Mapping[str, str] | None
    """The caller's labels: keys of 1 to 63 characters, values of at most 255."""

    network: NetworkInput | None
    """What it may connect to: "none", "public", "packages", a list of hosts (and "public"), or NetworkGrant.

    None: the template's default.
    """

    secrets: Mapping[str, SecretInput] | None
    """Secrets by environment variable, as {"OPENAI_API_KEY": Secret(hosts=["api.openai.com"])}."""

    image: str | DescribedImage | None
    """The image that is its root, which its processes can write: "python:3.12-slim", "oci:DIR", or an
    `Image`, which is built first.

    Shell, processes, PATH, working directory and user are the image's then. None: the template's own.
    """

    root: bool | None
    """Whether its processes are root in its image, and so can install; None: as the image's USER says."""

    snapshot: Snapshot | str | None
    """The snapshot, or its id, that the workspace and home start from; None: they start empty."""

    workspace_dir: str | Path | None
    """A directory on the mesh's machine that is mounted as the workspace; it outlives the sandbox.

    A relative path is resolved by this program. A private mesh accepts what this user owns, others what they allow.
    """

    volumes: Mapping[str, str] | None
    """Volumes by the absolute path inside, as {"/mnt/data": "data"}: directories by names of the user's own.

    A volume is made at its first use and outlives sandboxes; several may share it. Its size is not limited.
    """

    profile: str | None
    """The profile of the browser: its cookies and storage begin as the last sandbox with it left them.

    Each user's profiles are their own, and one sandbox at a time has one. The mesh needs a storage.
    """

    template: str | None
    """The template, if it is not named as the type."""

    priority: Literal["interactive", "batch"] | None
    """How the create waits: "batch" behind those of everybody else, and started among few at a time on each node.

    None: "interactive", and "batch" for `Mesh.create_many`.
    """

    fair_share: int | None
    """How many turns the job, which is the label "job", has in the queue for one of another; 1 to 100, None: 1.

    It is for the priority "batch".
    """

    reply_characters: int | None
    """The most characters of text that a model is sent for one call by `as_tools` and the adapters of frameworks.

    None: 16,000. The whole is in a file below /workspace/.replies, which the reply names.
    """

    trace_processes: bool | None
    """Whether commands and processes that this program starts in it have TRACEPARENT, their place in its trace.

    None: no, so that code in a sandbox learns nothing of traces.
    """
