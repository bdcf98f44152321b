"""Settings of the allocator."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class AllocatorSettings(BaseModel):
    """Settings of one allocator; those of one mesh must agree about capacity and pools."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    capacity: PositiveInt = 100
    """The most sandboxes that the mesh may have, unused ones included."""

    node_capacity: PositiveInt = 100
    """The most sandboxes on one node."""

    node_capacities: Mapping[str, PositiveInt] = Field(default_factory=dict)
    """The same for single nodes, by node id."""

    template_capacities: Mapping[str, PositiveInt] = Field(default_factory=dict)
    """The most sandboxes of a template, where it has a limit of its own."""

    caller_capacity: int = Field(default=0, ge=0)
    """The most sandboxes that one user holds at once; 0: no limit of its own. All anonymous sessions are one user."""

    caller_capacities: Mapping[str, PositiveInt] = Field(default_factory=dict)
    """The same for single users, by user id."""

    pools: Mapping[str, PositiveInt] = Field(default_factory=dict)
    """How many sandboxes to keep ready, by template."""

    pool_maxima: Mapping[str, PositiveInt] = Field(default_factory=dict)
    """The most that a pool keeps, by template, where it is more than is kept ready: what is above is deleted."""

    pool_pause_seconds: float = Field(default=0.1, ge=0)
    """How long after a claim its pool is refilled: as long as its holder's first call takes."""

    pool_concurrency: PositiveInt = 4
    """How many sandboxes of pools are made at once."""

    default_driver: str = ""
    """The driver for requests that name none; empty: the first one."""

    default_ttl_seconds: float = Field(default=3600.0, gt=0)
    """How long a lease lasts where the request names no time."""

    max_ttl_seconds: float = Field(default=7 * 86400.0, gt=0)
    """The longest lease that a request may have."""

    default_idle_seconds: float = Field(default=0.0, ge=0)
    """The idle timeout of requests that name none; 0: none."""

    min_idle_seconds: float = Field(default=5.0, gt=0)
    """The shortest idle timeout that a request may have: activity is reported every few seconds."""

    queue_timeout_seconds: float = Field(default=30.0, ge=0)
    """How long a request without a deadline waits in the queue of a full mesh."""

    create_timeout_seconds: float = Field(default=60.0, gt=0)
    """How long a driver may take to create a sandbox."""

    create_attempts: PositiveInt = 3
    """How often a start is tried, on other nodes where there are some, before its request fails."""

    create_pause_seconds: float = Field(default=0.1, gt=0)
    """How long before a start is tried a second time; doubled with each further one."""

    breaker_failures: PositiveInt = 3
    """After how many failed starts in a row a node is passed over while another has room."""

    breaker_seconds: float = Field(default=5.0, gt=0)
    """For how long it is passed over; doubled with each further failure, up to 60 s."""

    clash_seconds: float = Field(default=60.0, ge=0)
    """For how long a leased port that turned out to be somebody else's is given to nobody."""

    health_seconds: float = Field(default=2.0, gt=0)
    """How often the health of each node is checked; one that fails twice leaves the rotation."""

    node_grace_seconds: float = Field(default=60.0, gt=0)
    """After how long of silence the sandboxes of a node count as lost; many times `health_seconds`."""

    recovery_seconds: float = Field(default=10.0, gt=0)
    """How long nodes that do not answer are waited for when records are rebuilt after the store came back empty."""

    event_seconds: PositiveInt = 3600
    """How long the events of a deleted sandbox are kept."""

    event_poll_seconds: float = Field(default=0.25, gt=0)
    """How often subscribers of events get the new ones."""

    delete_concurrency: PositiveInt = 8
    """How many sandboxes are deleted at once."""

    delete_timeout_seconds: float = Field(default=30.0, gt=0)
    """How long a driver may take to delete one before it is asked again."""

    workspace_seconds: float = Field(default=600.0, gt=0)
    """How much longer a create or a deletion may take whose workspace is restored or saved."""

    sweep_seconds: float = Field(default=1.0, gt=0)
    """How often leases that ran out are looked for."""

    poll_seconds: float = Field(default=1.0, gt=0, le=2.0)
    """How often a waiter looks again even if no notification came."""

    owner_grace_seconds: float = Field(default=10.0, gt=0)
    """After how long of silence an allocator counts as dead; several times `sweep_seconds`."""

    reconcile_seconds: float = Field(default=60.0, gt=0)
    """How often records and runtimes are compared in full."""

    orphan_grace_seconds: float = Field(default=30.0, ge=0)
    """After how long a sandbox without a record is deleted."""

    tomb_seconds: PositiveInt = 3600
    """How long a deleted sandbox is remembered as deleted."""

    ephemeral: bool = False
    """The mesh ends with this process: its drivers delete what is left."""
