"""SandboxService, as its proto specifies it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import InvalidArgument, LeaseLost, SandboxLost, WrongState
from sandmeshd.allocator.claims.claims import Claims
from sandmeshd.allocator.claims.pool_subscribers import PoolSubscribers
from sandmeshd.allocator.maintenance.evacuation import Evacuation
from sandmeshd.allocator.maintenance.health import HealthReporter
from sandmeshd.allocator.maintenance.sweep import MeshSweep
from sandmeshd.allocator.network.control import NetworkControl
from sandmeshd.allocator.network.servicer import NetworkServicer
from sandmeshd.allocator.nodes.logs import SandboxLogs
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.nodes.servicer import NodeTemplateServicer
from sandmeshd.allocator.nodes.snapshots import NodeSnapshots
from sandmeshd.allocator.pauses.control import PauseControl
from sandmeshd.allocator.pauses.servicer import PauseServicer
from sandmeshd.allocator.records.event_log import EventLog
from sandmeshd.allocator.records.ownership import check_owned, check_owned_or_gone, is_owned, not_found
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.records.records import RecordState, timestamp
from sandmeshd.allocator.rounds import Rounds
from sandmeshd.allocator.secrets.servicer import SecretServicer
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.auth.principal import Principal, current_principal

Context = grpc.aio.ServicerContext[Any, Any]

_DEFAULT_PAGE, _LARGEST_PAGE = 100, 1000
_LAST_EVENTS = 20
# What a response needs to reach a client before the client's own deadline.
_RESPONSE_SECONDS = 1.0


@dataclass(frozen=True)
class Components:
    """The handlers of requests, beside the records themselves."""

    claims: Claims
    pause: PauseControl
    event_log: EventLog
    sweep: MeshSweep
    evacuation: Evacuation
    logs: SandboxLogs
    snapshots: NodeSnapshots
    health: HealthReporter
    nodes: Nodes
    pool_subscribers: PoolSubscribers
    rounds: Rounds


def _ready_seconds(remaining: float | None) -> float | None:
    """Return how long a response may take that is to reach its client in time; None: it has no deadline."""
    return None if remaining is None else max(0.0, remaining - min(_RESPONSE_SECONDS, remaining / 4))


class SandboxServicer(NetworkServicer, PauseServicer, NodeTemplateServicer, sandbox_pb2_grpc.SandboxServiceServicer):
    """Serve the records of a mesh; refusals are raised as exceptions of sandmesh.errors."""

    def __init__(
        self, settings: AllocatorSettings, records: RecordStore, components: Components, secrets: SecretServicer
    ) -> None:
        NetworkServicer.__init__(self, records, NetworkControl(components.nodes))
        PauseServicer.__init__(self, records, components.pause)
        NodeTemplateServicer.__init__(self, components.nodes)
        self._settings = settings
        self._components = components
        self.evacuation = components.evacuation
        """Ends every sandbox of the mesh; no RPC does."""
        self.secrets = secrets
        """Serves the secrets of the mesh, which claims use."""
        self.refresh_nodes = components.nodes.refresh_all
        """Reads the templates of every node again after they changed; no RPC does."""
        self.survey_snapshots = components.snapshots.survey
        """Corrects what counts as snapshots by what the nodes have; no RPC does."""

    async def ClaimSandbox(self, request: pb.ClaimSandboxRequest, context: Context) -> pb.ClaimSandboxResponse:
        """Claim a sandbox for a session: the one it has, one from a pool, or a new one."""
        self._components.rounds.use()
        ttl_us = _ttl_us(request, self._settings)
        if request.spec.secrets:
            resolved = await self.secrets.specs.resolved(request.spec, request.user_id)
            request.spec.CopyFrom(resolved)
        ready_seconds = _ready_seconds(context.time_remaining())
        queue_seconds = self._settings.queue_timeout_seconds if ready_seconds is None else ready_seconds
        return await self._components.claims.claim(request, ttl_us, queue_seconds, ready_seconds)

    async def RenewLease(self, request: pb.RenewLeaseRequest, context: Context) -> pb.RenewLeaseResponse:
        """Extend a lease."""
        ttl_us = _ttl_us(request, self._settings)
        await check_owned(self._records, request.sandbox_id)
        reply = await self._records.renew(request.sandbox_id, request.fencing_token, ttl_us)
        if reply.kind == "missing":
            raise not_found(request.sandbox_id)
        if reply.kind == "lost" or reply.record is None:
            raise _lease_lost(request.sandbox_id)
        return pb.RenewLeaseResponse(lease=reply.record.lease())

    async def ReleaseSandbox(self, request: pb.ReleaseSandboxRequest, context: Context) -> pb.ReleaseSandboxResponse:
        """Mark a sandbox for deletion."""
        self._components.rounds.use()
        await check_owned_or_gone(self._records, request.sandbox_id)
        reason, actor = _end(current_principal()) if request.killed else ("it was released", "holder")
        reply = await self._records.release(request.sandbox_id, request.fencing_token, reason, actor)
        if reply.kind == "lost":
            raise _lease_lost(request.sandbox_id)
        return pb.ReleaseSandboxResponse()

    async def GetSandbox(self, request: pb.GetSandboxRequest, context: Context) -> pb.GetSandboxResponse:
        """Read a record."""
        record = await self._records.read(request.sandbox_id)
        if record is None:
            # This raises Recovering while records are being rebuilt.
            await self._records.was_deleted(request.sandbox_id)
        if record is None or not is_owned(record):
            raise not_found(request.sandbox_id)
        return pb.GetSandboxResponse(sandbox=record.sandbox())

    async def GetSandboxLogs(self, request: pb.GetSandboxLogsRequest, context: Context) -> pb.GetSandboxLogsResponse:
        """Return the end of the log of a sandbox's agent and runtime."""
        record = await self._records.read(request.sandbox_id)
        if record is None or not is_owned(record):
            raise not_found(request.sandbox_id)
        return await self._components.logs.read(record, request)

    async def ListSandboxes(self, request: pb.ListSandboxesRequest, context: Context) -> pb.ListSandboxesResponse:
        """List records by id."""
        if request.page_size > _LARGEST_PAGE:
            raise InvalidArgument(f"page_size is at most {_LARGEST_PAGE}", {"field": "page_size"})
        size = request.page_size or _DEFAULT_PAGE
        found: list[pb.Sandbox] = []
        after = request.page_token
        while len(found) <= size:
            records = await self._records.page(request.session_key, request.labels, after, _DEFAULT_PAGE)
            own = filter(is_owned, records)
            found += [s for s in (record.sandbox() for record in own) if _has_labels(s, request)]
            if len(records) < _DEFAULT_PAGE:
                break
            after = records[-1].sandbox_id
        more = found[size - 1].sandbox_id if len(found) > size else ""
        return pb.ListSandboxesResponse(sandboxes=found[:size], next_page_token=more)

    async def ResolveSandbox(self, request: pb.ResolveSandboxRequest, context: Context) -> pb.ResolveSandboxResponse:
        """Return the endpoint of a READY sandbox's agent."""
        record = await self._records.read(request.sandbox_id)
        if record is None:
            if await self._records.was_deleted(request.sandbox_id):
                raise _lost(request.sandbox_id, await _end_of(self._components.event_log, request.sandbox_id))
            raise not_found(request.sandbox_id)
        _check_reachable(record)
        access = record.access
        return pb.ResolveSandboxResponse(
            sandbox=record.sandbox(),
            endpoint=access.endpoint,
            agent_token=access.agent_token,
            node_silent=self._components.nodes.is_silent(record.node_id),
        )

    async def WatchPools(self, request: pb.WatchPoolsRequest, context: Context) -> AsyncIterator[pb.WatchPoolsResponse]:
        """Stream the unused sandboxes of pools, then those that are added."""
        async with aclosing(self._components.pool_subscribers.subscribe()) as records:
            async for record in records:
                access = record.access
                yield pb.WatchPoolsResponse(
                    sandbox_id=record.sandbox_id, endpoint=access.endpoint, agent_token=access.agent_token
                )

    async def GetCapacity(self, request: pb.GetCapacityRequest, context: Context) -> pb.GetCapacityResponse:
        """Return what is used, and the limits."""
        capacity = await self._records.capacity()
        soonest = timestamp(capacity.next_expire_us) if capacity.next_expire_us else None
        return pb.GetCapacityResponse(
            used=capacity.used,
            limit=self._settings.capacity,
            pooled=capacity.pooled,
            next_expire_time=soonest,
            templates=capacity.templates,
            nodes=capacity.nodes,
            queued=capacity.queued,
        )

    async def ReportActivity(self, request: pb.ReportActivityRequest, context: Context) -> pb.ReportActivityResponse:
        """Restart idle timeouts, and append an event to those whose user code ran out of memory."""
        await self._records.touch(request.sandbox_ids)
        for sandbox_id in request.out_of_memory_ids:
            reason = "a call ended for want of memory: raise the sandbox's memory limit, or use less"
            await self._components.event_log.append(sandbox_id, "out_of_memory", reason, "gateway")
        return pb.ReportActivityResponse()

    async def CreateSnapshot(self, request: pb.CreateSnapshotRequest, context: Context) -> pb.CreateSnapshotResponse:
        """Take a snapshot of a sandbox."""
        record = await self._records.read(request.sandbox_id)
        if record is None or not is_owned(record):
            raise not_found(request.sandbox_id)
        _check_reachable(record)
        return await self._components.snapshots.take(record, request)

    async def ListSnapshots(self, request: pb.ListSnapshotsRequest, context: Context) -> pb.ListSnapshotsResponse:
        """List the caller's snapshots."""
        return await self._components.snapshots.list_own()

    async def DeleteSnapshot(self, request: pb.DeleteSnapshotRequest, context: Context) -> pb.DeleteSnapshotResponse:
        """Delete a snapshot."""
        await self._components.snapshots.delete(request.snapshot_id)
        return pb.DeleteSnapshotResponse()

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsResponse:
        """List past events."""
        if request.page_size > _LARGEST_PAGE:
            raise InvalidArgument(f"page_size is at most {_LARGEST_PAGE}", {"field": "page_size"})
        size = request.page_size or _DEFAULT_PAGE
        events = await self._components.event_log.read(request.sandbox_id, request.after_event_id, size)
        return pb.ListEventsResponse(events=[event for event in events if _is_owned_event(event)])

    async def WatchSandboxes(
        self, request: pb.WatchSandboxesRequest, context: Context
    ) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Stream events as they happen."""
        async for event in self._components.event_log.follow(request.sandbox_id, request.after_event_id):
            if _is_owned_event(event):
                yield pb.WatchSandboxesResponse(event=event)

    async def GetMeshHealth(self, request: pb.GetMeshHealthRequest, context: Context) -> pb.GetMeshHealthResponse:
        """Report problems and the health of the nodes, from what is known already."""
        self._components.rounds.use()
        return self._components.health.report()

    async def SweepMesh(self, request: pb.SweepMeshRequest, context: Context) -> pb.SweepMeshResponse:
        """Compare records and runtimes now."""
        return await self._components.sweep.run(request.dry_run)


def _is_owned_event(event: pb.SandboxEvent) -> bool:
    return current_principal().owns(event.session_key, event.sandbox_id, event.project)


def _ttl_us(request: pb.ClaimSandboxRequest | pb.RenewLeaseRequest, settings: AllocatorSettings) -> int:
    if not request.HasField("ttl"):
        return int(settings.default_ttl_seconds * 1e6)
    microseconds = request.ttl.ToMicroseconds()
    if not 0 < microseconds <= settings.max_ttl_seconds * 1e6:
        rule = f"must be more than 0 and at most {settings.max_ttl_seconds:g} s"
        raise InvalidArgument(f"ttl {rule}", {"field": "ttl"})
    return microseconds


def _check_reachable(record: RecordState) -> None:
    if record.state == "READY":
        return
    if record.state in ("STOPPING", "LOST", "FAILED"):
        raise _lost(record.sandbox_id, record.text("reason"))
    message = f"sandbox {record.sandbox_id} is {record.state}; wait until it is READY"
    if record.state == "PAUSED":
        message = f"sandbox {record.sandbox_id} is paused: resume it (box.resume(), ResumeSandbox), then call again"
    raise WrongState(message, {"state": record.state})


def _end(principal: Principal) -> tuple[str, str]:
    """Return why a sandbox ends that this principal kills, and who that is."""
    if principal.scope == "admin":
        return "an administrator killed it", "administrator"
    if principal.project:
        return "its project's administrator killed it", "administrator"
    return "it was killed with its user's token", "user"


async def _end_of(event_log: EventLog, sandbox_id: str) -> str:
    """Return how a deleted sandbox ended, by its events, which are kept for a while."""
    events = await event_log.read(sandbox_id, "", _LAST_EVENTS)
    ends = [event.reason for event in events if event.kind == "stopping" and event.reason]
    return ends[-1] if ends else "it was released, or its lease ran out"


def _has_labels(sandbox: pb.Sandbox, request: pb.ListSandboxesRequest) -> bool:
    return all(sandbox.spec.labels.get(key) == value for key, value in request.labels.items())


def _lost(sandbox_id: str, detail: str) -> SandboxLost:
    message = f"sandbox {sandbox_id} is gone: {detail}; get a new one"
    return SandboxLost(message, {"sandbox_id": sandbox_id, "detail": detail})


def _lease_lost(sandbox_id: str) -> LeaseLost:
    message = f"the token is not the one in force for sandbox {sandbox_id}: its lease ran out or passed on"
    return LeaseLost(message, {"sandbox_id": sandbox_id})
