"""SandboxService, as its proto specifies it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import InvalidArgument, LeaseLost, SandboxLost, WrongState
from sandmeshd.allocator.claims.claims import Claims
from sandmeshd.allocator.claims.pooled import Pooled
from sandmeshd.allocator.nodes.logs import Logs
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.nodes.pause import Pausing
from sandmeshd.allocator.nodes.snapshots import Snapshotting
from sandmeshd.allocator.records.journal import Journal
from sandmeshd.allocator.records.ledger import Ledger
from sandmeshd.allocator.records.ownership import check_owned, check_owned_or_gone, not_found
from sandmeshd.allocator.records.records import Record, timestamp
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.allocator.upkeep.drain import Emptying
from sandmeshd.allocator.upkeep.health import Health
from sandmeshd.allocator.upkeep.sweep import Sweeping
from sandmeshd.auth.principal import current_caller

Context = grpc.aio.ServicerContext[Any, Any]

_DEFAULT_PAGE, _LARGEST_PAGE = 100, 1000
# What an answer needs to get back to a caller before its own deadline.
_ANSWER_SECONDS = 1.0


@dataclass(frozen=True)
class Work:
    """What the servicer hands requests to, beside the records themselves."""

    claims: Claims
    pausing: Pausing
    journal: Journal
    sweeping: Sweeping
    emptying: Emptying
    logs: Logs
    snapshots: Snapshotting
    health: Health
    nodes: Nodes
    pooled: Pooled


def _ready_seconds(remaining: float | None) -> float | None:
    """Give how long an answer may take that is to reach its caller in time; None: it has no deadline."""
    return None if remaining is None else max(0.0, remaining - min(_ANSWER_SECONDS, remaining / 4))


class SandboxServicer(sandbox_pb2_grpc.SandboxServiceServicer):
    """Serves the records of a mesh; refusals are raised as exceptions of sandmesh.errors."""

    def __init__(self, settings: AllocatorSettings, ledger: Ledger, work: Work) -> None:
        self._settings = settings
        self._ledger = ledger
        self._work = work
        self.emptying = work.emptying
        """What ends every sandbox of the mesh; no RPC does."""

    async def look_again(self) -> None:
        """Ask every node for its templates, for they changed; no RPC does."""
        await self._work.nodes.look_again()

    @property
    def journal(self) -> Journal:
        """Where others of this process add events to a sandbox's stream."""
        return self._work.journal

    async def ClaimSandbox(self, request: pb.ClaimSandboxRequest, context: Context) -> pb.ClaimSandboxResponse:
        """Give a session a sandbox: the one it has, one from a pool, or a new one."""
        ttl_us = self._ttl_us(request.ttl if request.HasField("ttl") else None)
        remaining = context.time_remaining()
        queue_seconds = self._queue_seconds(remaining)
        return await self._work.claims.claim(request, ttl_us, queue_seconds, _ready_seconds(remaining))

    def _queue_seconds(self, remaining: float | None) -> float:
        seconds = _ready_seconds(remaining)
        return self._settings.queue_timeout_seconds if seconds is None else seconds

    def _ttl_us(self, ttl: Duration | None) -> int:
        if ttl is None:
            return int(self._settings.default_ttl_seconds * 1e6)
        microseconds = ttl.ToMicroseconds()
        if not 0 < microseconds <= self._settings.max_ttl_seconds * 1e6:
            rule = f"is more than 0 and at most {self._settings.max_ttl_seconds:g} s"
            raise InvalidArgument(f"ttl {rule}", {"field": "ttl"})
        return microseconds

    async def RenewLease(self, request: pb.RenewLeaseRequest, context: Context) -> pb.RenewLeaseResponse:
        """Move a lease's deadline."""
        ttl_us = self._ttl_us(request.ttl if request.HasField("ttl") else None)
        await check_owned(self._ledger, request.sandbox_id)
        reply = await self._ledger.renew(request.sandbox_id, request.fencing_token, ttl_us)
        if reply.kind == "missing":
            raise not_found(request.sandbox_id)
        if reply.kind == "lost" or reply.record is None:
            raise _lease_lost(request.sandbox_id)
        return pb.RenewLeaseResponse(lease=reply.record.lease())

    async def ReleaseSandbox(self, request: pb.ReleaseSandboxRequest, context: Context) -> pb.ReleaseSandboxResponse:
        """Record that a sandbox is to be deleted."""
        await check_owned_or_gone(self._ledger, request.sandbox_id)
        reply = await self._ledger.release(request.sandbox_id, request.fencing_token, "it was released", "holder")
        if reply.kind == "lost":
            raise _lease_lost(request.sandbox_id)
        return pb.ReleaseSandboxResponse()

    async def GetSandbox(self, request: pb.GetSandboxRequest, context: Context) -> pb.GetSandboxResponse:
        """Read a record."""
        record = await self._ledger.read(request.sandbox_id)
        if record is None:
            # While records are being rebuilt this says so.
            await self._ledger.is_buried(request.sandbox_id)
        if record is None or not current_caller().owns(record.text("session")):
            raise not_found(request.sandbox_id)
        return pb.GetSandboxResponse(sandbox=record.sandbox())

    async def GetSandboxLogs(self, request: pb.GetSandboxLogsRequest, context: Context) -> pb.GetSandboxLogsResponse:
        """Give the last words of a sandbox's agent and runtime."""
        record = await self._ledger.read(request.sandbox_id)
        if record is None or not current_caller().owns(record.text("session")):
            raise not_found(request.sandbox_id)
        return await self._work.logs.read(record, request)

    async def ListSandboxes(self, request: pb.ListSandboxesRequest, context: Context) -> pb.ListSandboxesResponse:
        """List records by id."""
        if request.page_size > _LARGEST_PAGE:
            raise InvalidArgument(f"page_size is at most {_LARGEST_PAGE}", {"field": "page_size"})
        size = request.page_size or _DEFAULT_PAGE
        caller = current_caller()
        found: list[pb.Sandbox] = []
        after = request.page_token
        while len(found) <= size:
            records = await self._ledger.page(request.session_key, request.labels, after, _DEFAULT_PAGE)
            own = [record for record in records if caller.owns(record.text("session"))]
            found += [s for s in (record.sandbox() for record in own) if _has_labels(s, request)]
            if len(records) < _DEFAULT_PAGE:
                break
            after = records[-1].sandbox_id
        more = found[size - 1].sandbox_id if len(found) > size else ""
        return pb.ListSandboxesResponse(sandboxes=found[:size], next_page_token=more)

    async def ResolveSandbox(self, request: pb.ResolveSandboxRequest, context: Context) -> pb.ResolveSandboxResponse:
        """Say where the agent of a READY sandbox is."""
        record = await self._ledger.read(request.sandbox_id)
        if record is None:
            if await self._ledger.is_buried(request.sandbox_id):
                raise _lost(request.sandbox_id, "it was released, or its lease ran out")
            raise not_found(request.sandbox_id)
        _check_reachable(record)
        access = record.access
        return pb.ResolveSandboxResponse(
            sandbox=record.sandbox(),
            endpoint=access.endpoint,
            agent_token=access.agent_token,
            node_silent=self._work.nodes.is_silent(record.node_id),
        )

    async def WatchPools(self, request: pb.WatchPoolsRequest, context: Context) -> AsyncIterator[pb.WatchPoolsResponse]:
        """Send what waits in pools, then what is added."""
        async with aclosing(self._work.pooled.follow()) as records:
            async for record in records:
                access = record.access
                yield pb.WatchPoolsResponse(
                    sandbox_id=record.sandbox_id, endpoint=access.endpoint, agent_token=access.agent_token
                )

    async def GetCapacity(self, request: pb.GetCapacityRequest, context: Context) -> pb.GetCapacityResponse:
        """Say what is used and allowed."""
        capacity = await self._ledger.capacity()
        soonest = timestamp(capacity.next_expire_us) if capacity.next_expire_us else None
        return pb.GetCapacityResponse(
            used=capacity.used,
            limit=self._settings.capacity,
            pooled=capacity.pooled,
            next_expire_time=soonest,
            templates=capacity.templates,
            nodes=capacity.nodes,
        )

    async def ReportActivity(self, request: pb.ReportActivityRequest, context: Context) -> pb.ReportActivityResponse:
        """Begin idle times anew."""
        await self._ledger.touch(request.sandbox_ids)
        return pb.ReportActivityResponse()

    async def PauseSandbox(self, request: pb.PauseSandboxRequest, context: Context) -> pb.PauseSandboxResponse:
        """Freeze a sandbox."""
        await check_owned(self._ledger, request.sandbox_id)
        record = await self._work.pausing.become(request.sandbox_id, request.fencing_token, "PAUSED")
        return pb.PauseSandboxResponse(sandbox=record.sandbox())

    async def ResumeSandbox(self, request: pb.ResumeSandboxRequest, context: Context) -> pb.ResumeSandboxResponse:
        """Let a frozen sandbox run."""
        await check_owned(self._ledger, request.sandbox_id)
        record = await self._work.pausing.become(request.sandbox_id, request.fencing_token, "READY")
        return pb.ResumeSandboxResponse(sandbox=record.sandbox())

    async def CreateSnapshot(self, request: pb.CreateSnapshotRequest, context: Context) -> pb.CreateSnapshotResponse:
        """Save what a sandbox holds."""
        record = await self._ledger.read(request.sandbox_id)
        if record is None or not current_caller().owns(record.text("session")):
            raise not_found(request.sandbox_id)
        _check_reachable(record)
        return pb.CreateSnapshotResponse(snapshot=await self._work.snapshots.take(record, request))

    async def ListSnapshots(self, request: pb.ListSnapshotsRequest, context: Context) -> pb.ListSnapshotsResponse:
        """List the caller's snapshots."""
        return await self._work.snapshots.listing()

    async def DeleteSnapshot(self, request: pb.DeleteSnapshotRequest, context: Context) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot."""
        await self._work.snapshots.delete(request.snapshot_id)
        return pb.DeleteSnapshotResponse()

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsResponse:
        """List what happened."""
        if request.page_size > _LARGEST_PAGE:
            raise InvalidArgument(f"page_size is at most {_LARGEST_PAGE}", {"field": "page_size"})
        size = request.page_size or _DEFAULT_PAGE
        events = await self._work.journal.read(request.sandbox_id, request.after_event_id, size)
        return pb.ListEventsResponse(events=[one for one in events if current_caller().owns(one.session_key)])

    async def WatchSandboxes(
        self, request: pb.WatchSandboxesRequest, context: Context
    ) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send what happens as it happens."""
        caller = current_caller()
        async for event in self._work.journal.follow(request.sandbox_id, request.after_event_id):
            if caller.owns(event.session_key):
                yield pb.WatchSandboxesResponse(event=event)

    async def GetMeshHealth(self, request: pb.GetMeshHealthRequest, context: Context) -> pb.GetMeshHealthResponse:
        """Say what is not as it should be, asking nobody."""
        return self._work.health.tell()

    async def SweepMesh(self, request: pb.SweepMeshRequest, context: Context) -> pb.SweepMeshResponse:
        """Compare records and runtimes now."""
        return await self._work.sweeping.run(request.dry_run)


def _check_reachable(record: Record) -> None:
    if record.state == "READY":
        return
    if record.state in ("STOPPING", "LOST", "FAILED"):
        raise _lost(record.sandbox_id, record.text("reason"))
    message = f"sandbox {record.sandbox_id} is {record.state}; wait until it is READY"
    raise WrongState(message, {"state": record.state})


def _has_labels(sandbox: pb.Sandbox, request: pb.ListSandboxesRequest) -> bool:
    return all(sandbox.spec.labels.get(key) == value for key, value in request.labels.items())


def _lost(sandbox_id: str, detail: str) -> SandboxLost:
    message = f"sandbox {sandbox_id} is gone: {detail}; get a new one"
    return SandboxLost(message, {"sandbox_id": sandbox_id, "detail": detail})


def _lease_lost(sandbox_id: str) -> LeaseLost:
    message = f"the token is not the one in force for sandbox {sandbox_id}: its lease ran out or passed on"
    return LeaseLost(message, {"sandbox_id": sandbox_id})
