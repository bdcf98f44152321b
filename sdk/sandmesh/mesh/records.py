"""What a client of a mesh returns. Times are aware datetimes in UTC, spans are seconds, sizes are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from google.protobuf.message import Message

from sandmesh.errors import Fault, fault_of_end
from sandmesh.inputs import Limits, NetworkGrant, Snapshot
from sandmesh.shared.fork_lock import fork_lock

Scope: TypeAlias = Literal["user", "admin", "read-only", "sandbox", "project-admin"]

# States of sandboxes that cannot be used any more.
_ENDED = frozenset({"STOPPING", "GONE", "FAILED"})


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of the mesh."""

    _message: Message = field(repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the whole record as JSON values, named as in the protos: what the commands print with `-o json`."""
        with fork_lock:
            from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - its import is slow

        return dict(MessageToDict(self._message, preserving_proto_field_name=True))


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The exclusive right of a session to a sandbox."""

    holder: str
    """The session's key."""

    fencing_token: int
    """Rises with each lease of the sandbox; goes with each request that changes the sandbox."""

    expires: datetime


@dataclass(frozen=True, kw_only=True)
class SandboxInfo(Record):
    """A sandbox's record."""

    sandbox_id: str
    template: str
    image: str
    """The image that is its root; empty: the template's, if that has one."""
    state: str
    """PENDING, STARTING, READY, PAUSED, STOPPING, GONE, FAILED or LOST; a newer mesh may have others."""
    state_reason: str
    """Why it FAILED or was LOST."""
    created: datetime
    lease: Lease | None
    """None while it waits in a pool."""
    labels: Mapping[str, str]
    limits: Limits
    network: NetworkGrant | None
    """What its creator asked for, as `limits`; None is the driver's default, and of `network` the template's."""
    enforced: Mapping[str, str]
    """What enforces each default, by name: {"memory": "no", "pids": "rlimit"}."""
    idle_timeout: float | None
    """Seconds without a use after which `on_idle` is done; None: never for that reason."""
    on_idle: Literal["release", "pause"]
    auto_resume: bool
    """Whether requests resume it while it is PAUSED."""
    driver: str
    node_id: str
    user_id: str
    """Who owns its session; empty in a pool."""
    session_key: str
    slot: str
    """Its place in the session, by default the template's name."""
    snapshot_id: str
    """The snapshot that it was started from, or empty."""
    snapshot_of: str
    """The sandbox that this snapshot is of: of a fork the one that was forked."""
    cost: float
    """What it has cost, in the unit of its driver's prices; 0 without them."""

    def __repr__(self) -> str:
        return f"<{self.template} {self.sandbox_id} {self.state}>"

    @property
    def in_use(self) -> bool:
        """Whether a session holds it and it has not ended."""
        return self.lease is not None and self.state not in _ENDED


@dataclass(frozen=True, kw_only=True)
class SandboxEvent(Record):
    """Something that happened to a sandbox."""

    event_id: str
    """Rises with time; a listing or a subscription continues after it."""

    sandbox_id: str
    time: datetime

    kind: str
    """created, retried, ready, leased, renewed, paused, resumed, adopted, lost, failed, stopping, deleted, ..."""

    reason: str
    """Why, for a person."""

    actor: str
    """The user or the service that caused it."""

    session_key: str
    user_id: str

    phases: Mapping[str, float]
    """What its create's time went to, in seconds: "place", "queue", "pull", "start". Only of one that was created."""

    @property
    def fault(self) -> Fault | None:
        """Whose fault it is that the sandbox was lost or could not start, as `SandmeshError.fault`; else None."""
        return fault_of_end(self.reason) if self.kind in ("lost", "failed") else None


@dataclass(frozen=True, kw_only=True)
class LogChunk:
    """A part of the log of a sandbox's agent and runtime."""

    data: bytes
    end_offset: int
    """Where `data` ends in the whole log, in bytes."""


@dataclass(frozen=True, kw_only=True)
class TokenInfo(Record):
    """A token, without its secret."""

    token_id: str
    name: str
    scope: Scope
    user_id: str
    """The user it authenticates; empty for admin, project-admin and sandbox, and for read-only of everything."""

    created: datetime
    expires: datetime | None
    """None: it does not expire."""

    last_used: datetime | None
    """To about a minute; None: never."""
    revoked: datetime | None
    sandbox_id: str = ""
    """The one sandbox that it is for, with the scope sandbox."""

    project: str = ""
    """The project that it administers, with the scope project-admin."""

    private_network: bool = False
    """Whether its grants may name hosts of private networks, and addresses that are not public."""


@dataclass(frozen=True, kw_only=True)
class CreatedToken(Record):
    """A new token, and the secret that clients send as `Authorization: Bearer ...`."""

    token: TokenInfo
    secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class AuditEntry(Record):
    """One RPC that changed something, or that was refused."""

    entry_id: str
    time: datetime
    user_id: str
    """Empty for an administrator and for whom no token was accepted."""

    scope: str
    """admin, project-admin or user; empty where no token was accepted."""

    token_id: str
    peer: str
    """unix, or an address as ipv4:192.0.2.1:50000."""

    method: str
    """As SandboxService.CreateSnapshot."""

    outcome: str
    """OK, or the reason of the error."""

    sandbox_ids: tuple[str, ...]
    session_id: str
    details: Mapping[str, str]
    """Names and ids of what it changed."""


@dataclass(frozen=True, kw_only=True)
class QuotaInfo(Record):
    """The quota of one project or one user, and its use: each by name (sandboxes, memory, cpus, ...)."""

    project: str
    """Empty for a user's."""

    user_id: str
    """Empty for a project's."""

    limits: Mapping[str, float]
    """Only those that are set; memory in bytes, cpus in cores."""

    use: Mapping[str, float]

    user_ids: tuple[str, ...]
    """Of a project other than "default": the users that are assigned to it."""


@dataclass(frozen=True)
class SnapshotInfo(Record, Snapshot):
    """A snapshot, and where it is kept."""

    node_id: str = field(kw_only=True)
    """The node that keeps it; sandboxes that start from it run there."""

    driver: str = field(kw_only=True)


@dataclass(frozen=True, kw_only=True)
class SnapshotList:
    """Snapshots, the oldest first."""

    snapshots: tuple[SnapshotInfo, ...]
    silent_nodes: tuple[str, ...]
    """Nodes that did not answer: their snapshots are missing here."""


@dataclass(frozen=True, kw_only=True)
class PortInfo(Record):
    """A URL that leads to a port of a sandbox, or to its browser."""

    exposure_id: str
    kind: str
    """`port`, or `devtools`: the DevTools protocol of the sandbox's browser, where `port` is 0."""

    port: int
    url: str
    """Ends in a slash; WebSockets are served at the same place."""

    expires: datetime
    connections: int
    """How many are open through it."""


@dataclass(frozen=True, kw_only=True)
class TemplateOnNode(Record):
    """A template as one node has it."""

    node_id: str
    driver: str
    prepared: bool
    """Whether a create can start immediately; otherwise the first one waits for the template to be built or pulled."""

    generation: str
    """Changes with anything in the template. Where nodes differ, one was started with other templates."""


@dataclass(frozen=True, kw_only=True)
class TemplateInfo(Record):
    """A template that sandboxes can be created from."""

    name: str
    description: str
    tool_groups: tuple[str, ...]
    limits: Limits
    """The most that a sandbox may have, and its default where a create names no limit."""

    network: NetworkGrant | None
    """What a sandbox may reach where a create names no network."""

    network_fixed: bool
    """Whether a sandbox may reach nothing beyond `network`, whatever a create names."""

    image: str
    """Its image; empty where it is built from the template's packages."""

    system: tuple[str, ...]
    """The Debian packages that its sandboxes have besides those of every sandbox."""

    nodes: tuple[TemplateOnNode, ...]
    """The nodes that have it, by id; the other fields are as the first of them has them."""


@dataclass(frozen=True, kw_only=True)
class TemplateRegistration(Record):
    """The result of registering a template."""

    name: str
    generation: str
    """Changes with anything in the template."""

    changed: bool
    """Whether the mesh's templates changed; false where it had the same template already."""


@dataclass(frozen=True, kw_only=True)
class Capacity(Record):
    """How many sandboxes a mesh has and may have."""

    used: int
    limit: int
    pools: Mapping[str, int]
    """Sandboxes that are ready and unused, by template."""
    templates: Mapping[str, int]
    """Sandboxes that count against the limit, by template."""

    nodes: Mapping[str, int]
    """Sandboxes that count against the limit, by node."""
    queued: int = 0
    """Creates that wait for a place."""
    next_expiry: datetime | None
    """When the next lease ends; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Trouble(Record):
    """Something that is wrong with a mesh now."""

    part: str
    """store, clock, node or records."""

    node_id: str
    """The node, where it is one's."""

    blocks: bool
    """Requests fail or wait because of it; otherwise they only may."""

    detail: str
    fix: str
    """What to do about it."""


@dataclass(frozen=True, kw_only=True)
class NodeHealth(Record):
    """A node as the mesh sees it."""

    name: str
    node_id: str
    """Empty where it has never answered."""

    driver: str
    in_rotation: bool
    """Sandboxes are created there: it answers, and starts do not keep failing."""


@dataclass(frozen=True, kw_only=True)
class Preparation(Record):
    """A template that is being built on a node; its sandboxes wait for it."""

    template: str
    node_id: str
    step: str
    """What is being done, for a person."""


@dataclass(frozen=True, kw_only=True)
class MeshHealth(Record):
    """The health of a mesh."""

    troubles: tuple[Trouble, ...]
    nodes: tuple[NodeHealth, ...]
    preparations: tuple[Preparation, ...]


@dataclass(frozen=True, kw_only=True)
class SweepFinding(Record):
    """A difference between the mesh's records and its runtimes."""

    kind: str
    """orphan, ghost, lost_record, expired, idle, abandoned, stopping, unsettled, silent or unreachable."""

    sandbox_id: str
    """Empty where it is about a node."""

    node_id: str
    action: str
    """What a sweep does about it: delete, lose, adopt, settle, release, fail or wait."""

    reason: str
    since: datetime | None


@dataclass(frozen=True, kw_only=True)
class SweepReport(Record):
    """What a sweep found."""

    findings: tuple[SweepFinding, ...]
    recovering: bool
    """The store came back empty and its records are being rebuilt: nothing is created or deleted until then."""
