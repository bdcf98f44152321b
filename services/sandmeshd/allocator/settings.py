"""Settings of an allocator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, PositiveInt, SecretStr, ValidationInfo, field_validator

from sandmeshd.allocator.rounds import REST_SECONDS
from sandmeshd.runtime.settings import Settings


class AllocatorSettings(Settings):
    """Settings of one allocator; those of one mesh must agree about capacity and pools."""

    capacity: int = Field(default=100, ge=1, le=100_000, validation_alias="SANDMESH_MAX_SANDBOXES")
    """The most sandboxes that exist at the same time, including pools."""

    node_capacity: int = Field(default=0, ge=0, validation_alias="SANDMESH_MAX_SANDBOXES_PER_NODE")
    """The most sandboxes on one node; 0 = unlimited."""

    node_capacities: dict[str, PositiveInt] = Field(default_factory=dict, validation_alias="SANDMESH_NODE_CAPACITIES")
    """The same for single nodes, by node id."""

    template_capacities: dict[str, PositiveInt] = Field(
        default_factory=dict, validation_alias="SANDMESH_TEMPLATE_CAPACITIES"
    )
    """The most sandboxes per template; templates that are not named have no separate limit."""

    caller_capacity: int = Field(default=0, ge=0, validation_alias="SANDMESH_MAX_SANDBOXES_PER_USER")
    """The most sandboxes that one user holds; 0 = unlimited. All anonymous sessions count as one user."""

    cost_per_day: float = Field(default=0.0, ge=0, validation_alias="SANDMESH_COST_PER_DAY")
    """What sandboxes may cost in a day (UTC) before none is added, in the unit of the driver's prices; 0: anything."""

    mesh_secret: SecretStr = SecretStr("")
    """The secret that the mesh's services share; values of secrets are encrypted under a key that follows from it."""

    caller_capacities: Mapping[str, PositiveInt] = Field(default_factory=dict)
    """The same for single users, by user id."""

    pools: dict[str, PositiveInt] = Field(default_factory=dict, validation_alias="SANDMESH_POOLS")
    """How many sandboxes of a template are kept ready and unused."""

    pool_maxima: Mapping[str, PositiveInt] = Field(default_factory=dict)
    """The most that a pool keeps, by template, where it is more than is kept ready: what is above is deleted."""

    pool_pause_seconds: float = Field(default=0.1, ge=0)
    """How long after a claim its pool is refilled: as long as its holder's first call takes."""

    pool_concurrency: PositiveInt = 4
    """How many sandboxes of pools are created in parallel."""

    default_driver: str = ""
    """The driver for requests that name none; empty: the first one."""

    default_ttl_seconds: float = Field(default=3600.0, gt=0, validation_alias="SANDMESH_LEASE_SECONDS")
    """How long a lease lasts whose request states no time and that is not renewed."""

    max_ttl_seconds: float = Field(default=7 * 86400.0, gt=0)
    """The longest lease that a request may have."""

    min_idle_seconds: float = Field(default=5.0, gt=0)
    """The shortest idle timeout that a request may have: activity is reported every few seconds."""

    default_idle_seconds: float = Field(default=0.0, ge=0, validation_alias="SANDMESH_IDLE_SECONDS")
    """How long a sandbox may be unused whose claim states no time; 0: for as long as its lease lasts."""

    default_idle_action: Literal["release", "pause"] = Field(default="release", validation_alias="SANDMESH_ON_IDLE")
    """What is done then with a sandbox whose claim states nothing: release it, or pause it where its driver can."""

    queue_timeout_seconds: float = Field(default=30.0, ge=0, validation_alias="SANDMESH_QUEUE_SECONDS")
    """How long a request waits in a full mesh when its caller states no deadline."""

    batch_starts: PositiveInt = Field(default=2, validation_alias="SANDMESH_BATCH_STARTS")
    """How many sandboxes of batches start in parallel on each node; the rest of the node is left to other creates."""

    create_timeout_seconds: float = Field(default=60.0, gt=0)
    """How long a driver may take to create a sandbox."""

    create_attempts: PositiveInt = 3
    """How often a start is tried, on other nodes where there are some, before its request fails."""

    create_pause_seconds: float = Field(default=0.1, gt=0)
    """How long before a start is tried a second time; doubled with each further one."""

    driver_return_seconds: float = Field(default=10.0, ge=0, validation_alias="SANDMESH_DRIVER_RETURN_SECONDS")
    """How long creates wait for a driver that went away, as when it is restarted, where no other node serves them."""

    breaker_failures: PositiveInt = 3
    """After how many failed starts in a row a node is passed over while another has room."""

    breaker_seconds: float = Field(default=5.0, gt=0)
    """For how long it is passed over; doubled with each further failure, up to 60 s."""

    template_retry_seconds: float = Field(default=2.0, gt=0)
    """How long before a template that could not be made ready is tried again; doubled with each failure, up to 60 s."""

    clash_seconds: float = Field(default=60.0, ge=0)
    """How long a leased port that another program turned out to use is not leased again."""

    health_seconds: float = Field(default=2.0, gt=0)
    """How often the health of each node is checked; one that fails twice leaves the rotation."""

    node_grace_seconds: float = Field(default=60.0, gt=0, validation_alias="SANDMESH_NODE_GRACE_SECONDS")
    """After how long of silence the sandboxes of a node count as lost."""

    recovery_seconds: float = Field(default=10.0, gt=0)
    """How long nodes that do not answer are waited for when records are rebuilt after the store came back empty."""

    event_seconds: int = Field(default=3600, ge=1, validation_alias="SANDMESH_EVENT_SECONDS")
    """How long a deleted sandbox is remembered, with its events."""

    event_poll_seconds: float = Field(default=0.25, gt=0)
    """How often subscribers of events get the new ones."""

    delete_concurrency: PositiveInt = 8
    """How many sandboxes are deleted in parallel."""

    delete_timeout_seconds: float = Field(default=30.0, gt=0)
    """How long a driver may take to delete one before it is asked again."""

    workspace_seconds: float = Field(default=600.0, gt=0)
    """How much longer a create or a deletion may take whose workspace is restored or saved."""

    sweep_seconds: float = Field(default=1.0, gt=0, validation_alias="SANDMESH_SWEEP_SECONDS")
    """How often expired leases and idle times are looked for; at rest, when the next one ends, and every 4 s."""

    usage_seconds: float = Field(default=30.0, gt=0, le=60)
    """How often the usage of sandboxes is counted: what was not counted yet is lost in a crash."""

    poll_seconds: float = Field(default=1.0, gt=0, le=2.0)
    """How often a waiter looks again even if no notification came."""

    owner_grace_seconds: float = Field(default=10.0, gt=0, validation_alias="SANDMESH_OWNER_GRACE_SECONDS")
    """After how long of silence an allocator counts as dead, and another goes on with what it began."""

    reconcile_seconds: float = Field(default=60.0, gt=0)
    """How often records and runtimes are compared in full."""

    orphan_grace_seconds: float = Field(default=30.0, ge=0)
    """After how long a sandbox without a record is deleted."""

    tomb_seconds: PositiveInt = 3600
    """How long a deleted sandbox is remembered as deleted."""

    ephemeral: bool = False
    """The mesh ends with this process: its drivers delete what is left."""

    @property
    def per_node(self) -> int:
        """The most sandboxes on a node that reports no capacity."""
        return self.node_capacity or self.capacity

    @property
    def pause_seconds(self) -> float:
        """After how long without any allocator's sweep the mesh stood still: leases that ended meanwhile go on."""
        return max(self.owner_grace_seconds, 3 * self.sweep_seconds, 3 * REST_SECONDS)

    @field_validator("node_grace_seconds")
    @classmethod
    def _outlasts_a_silence(cls, seconds: float, info: ValidationInfo) -> float:
        # A node that misses two health checks is not lost yet.
        shortest = 2.5 * info.data.get("health_seconds", 0)
        if seconds < shortest:
            raise ValueError(f"it must be at least {shortest:g} seconds")
        return seconds

    @field_validator("default_idle_seconds")
    @classmethod
    def _not_too_short(cls, seconds: float, info: ValidationInfo) -> float:
        # Use is reported every few seconds: a shorter time would end sandboxes that are in use.
        shortest = info.data.get("min_idle_seconds", 0)
        if 0 < seconds < shortest:
            raise ValueError(f"it must be 0, for none, or at least {shortest:g} seconds")
        return seconds
