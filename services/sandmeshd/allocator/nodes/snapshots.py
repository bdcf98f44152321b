"""Snapshots of sandboxes: taken and kept by nodes, for the owners of the sandboxes' sessions.

The store has no records of them but what counts in quotas, which is corrected by what nodes list, with its owner.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
from dataclasses import dataclass, replace
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import (
    CapabilityMissing,
    InvalidArgument,
    LeaseLost,
    QuotaExceeded,
    RuntimeUnavailable,
    SandmeshError,
    SnapshotNotFound,
)
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.record_store import NodeWant, RecordStore, Want
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.auth.principal import SERVICE, acting_for, current_principal
from sandmeshd.tenants.holdings import CountedSnapshot, Holdings

_ID = re.compile(r"snap_[a-z0-9]{1,64}")
_ASK_SECONDS = 10.0
_LONGEST_TTL = timedelta(days=7)
_OWNER, _USER = "session", "user"
_PROJECT, _CALLER = "project", "caller"


@dataclass(frozen=True)
class Found:
    """A snapshot and its node."""

    node: Node
    snapshot: driver_pb2.RuntimeSnapshot


class NodeSnapshots:
    """Take, list and delete snapshots on the nodes, for their owners."""

    def __init__(self, records: RecordStore, nodes: Nodes, mesh_id: str, holdings: Holdings) -> None:
        self._records = records
        self._nodes = nodes
        self._mesh_id = mesh_id
        self._holdings = holdings

    async def take(self, record: RecordState, request: pb.CreateSnapshotRequest) -> pb.CreateSnapshotResponse:
        """Take a snapshot of a READY sandbox, which counts as activity.

        Raises:
            LeaseLost, InvalidArgument, CapabilityMissing, RuntimeUnavailable: As named.
            QuotaExceeded: Its project or its user has as many bytes of snapshots as it may, or would with this one,
                which is deleted then.
        """
        if record.token != request.fencing_token:
            message = (
                f"the token is not the one in force for sandbox {record.sandbox_id}: its lease ran out or passed on"
            )
            raise LeaseLost(message, {"sandbox_id": record.sandbox_id})
        node = self._able(record)
        if request.kernels and not (node.info and node.info.capabilities.fork_kernels):
            message = "the sandbox's driver copies no kernels: fork it without them (kernels=False)"
            raise CapabilityMissing(message, {"needs": "fork_kernels"})
        owners = record.text(_PROJECT), record.text(_CALLER)
        if await self._is_limited(*owners):
            await self.survey()
            await self._holdings.check_snapshots(*owners)
        await self._records.touch([record.sandbox_id])
        driver_request = driver_pb2.SnapshotSandboxRequest(
            sandbox_id=record.sandbox_id,
            snapshot_id=_checked(request.snapshot_id) if request.snapshot_id else _new_id(),
            record_labels={name: record.text(name) for name in (_OWNER, _USER, _PROJECT, _CALLER)},
            kernels=request.kernels,
            kernels_timeout=request.kernels_timeout if request.HasField("kernels_timeout") else None,
            ttl=_checked_ttl(request),
        )
        taken = await node.client.snapshot_sandbox(driver_request)
        found = Found(node, taken.snapshot)
        await self._records.touch([record.sandbox_id])
        await self._keep(found)
        return pb.CreateSnapshotResponse(
            snapshot=_as_message(found), kernels=taken.snapshot.kernels, not_copied=taken.not_copied
        )

    async def _is_limited(self, project: str, caller: str) -> bool:
        try:
            return await self._holdings.check_snapshots(project, caller)
        except QuotaExceeded:
            return True  # as far as is counted, which may be corrected

    async def _keep(self, found: Found) -> None:
        try:
            await self._holdings.keep_snapshot(_counted(found))
        except QuotaExceeded:
            # No client knows of it: what the quota has no room for is not kept.
            request = driver_pb2.DeleteSnapshotRequest(snapshot_id=found.snapshot.snapshot_id)
            await found.node.client.delete_snapshot(request)
            raise

    async def survey(self) -> None:
        """Correct what counts as snapshots by what the nodes that answer have."""
        with acting_for(SERVICE):
            found, silent = await self._find_all()
        able = {node.node_id for node in self._able_nodes()}
        # The id of a node that never answered is not known.
        known = all(node.info is not None for node in self._nodes.all)
        nodes = {node.node_id for node in self._nodes.all} if known else set[str]()
        await self._holdings.survey_snapshots([_counted(one) for one in found], able - {*silent}, nodes)

    def _able_nodes(self) -> list[Node]:
        return [node for node in self._nodes.all if node.info is not None and node.info.capabilities.snapshot]

    def _able(self, record: RecordState) -> Node:
        node = self._nodes.by_id(record.node_id)
        if node is None or node.info is None:
            raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
        if not node.info.capabilities.snapshot:
            message = f"the {node.info.name} driver takes no snapshots: choose another driver"
            raise CapabilityMissing(message, {"needs": "snapshot"})
        return node

    async def list_own(self) -> pb.ListSnapshotsResponse:
        """List the principal's snapshots, the oldest first."""
        found, silent = await self._find_all()
        messages = sorted(map(_as_message, found), key=lambda one: (one.create_time.ToNanoseconds(), one.snapshot_id))
        return pb.ListSnapshotsResponse(snapshots=messages, silent_nodes=silent)

    async def delete(self, snapshot_id: str) -> None:
        """Delete a snapshot of the principal's.

        Raises:
            SnapshotNotFound: It does not exist, or has another owner.
            RuntimeUnavailable: A node that may have it does not answer.
        """
        found = await self.find(snapshot_id)
        await found.node.client.delete_snapshot(driver_pb2.DeleteSnapshotRequest(snapshot_id=snapshot_id))
        await self._holdings.forget_snapshot(snapshot_id)

    async def find(self, snapshot_id: str) -> Found:
        """Return a snapshot of the principal's.

        Raises:
            SnapshotNotFound: It does not exist, or has another owner.
            RuntimeUnavailable: A node that may have it does not answer.
        """
        found, silent = await self._find_all()
        for one in found:
            if one.snapshot.snapshot_id == snapshot_id:
                return one
        if silent:
            listed = ", ".join(silent)
            message = f"there is no snapshot {snapshot_id} on the nodes that answer; {listed} does not"
            raise RuntimeUnavailable(message, {"fix": "start its driver"})
        raise SnapshotNotFound(f"there is no snapshot {snapshot_id}", {"snapshot_id": snapshot_id})

    async def _find_all(self) -> tuple[list[Found], list[str]]:
        able = self._able_nodes()
        answers = await asyncio.gather(*(self._of(node) for node in able))
        silent = [node.node_id for node, answer in zip(able, answers, strict=True) if answer is None]
        return [snapshot for answer in answers if answer is not None for snapshot in answer], silent

    async def _of(self, node: Node) -> list[Found] | None:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                request = driver_pb2.ListSnapshotsRequest(mesh_id=self._mesh_id)
                kept = (await node.client.list_snapshots(request)).snapshots
        except (SandmeshError, TimeoutError):
            return None
        caller = current_principal()
        # One of a mesh before projects counted has no label of it: it is only its owner's.
        labels = [(one, one.record_labels) for one in kept]
        return [Found(node, one) for one, of in labels if caller.owns(of[_OWNER], "", of.get(_PROJECT, ""))]

    async def placed(self, spec: pb.SandboxSpec) -> pb.SandboxSpec:
        """Return a spec with the driver that has its snapshot and the sandbox that it is of, where it names one.

        Raises:
            SnapshotNotFound, RuntimeUnavailable: As `find`.
            InvalidArgument: It is of another driver or template.
        """
        if not (spec.snapshot_id or spec.snapshot_of):
            return spec
        full = pb.SandboxSpec()
        full.CopyFrom(spec)
        full.snapshot_of = ""
        if not spec.snapshot_id:
            return full
        found = await self.find(spec.snapshot_id)
        driver = found.node.info.name if found.node.info else ""
        if spec.driver not in ("", driver) or spec.template != found.snapshot.template:
            source = f"a sandbox of {found.snapshot.template} on {driver}"
            message = f"snapshot {spec.snapshot_id} is one of {source}: it fits no other"
            raise InvalidArgument(message, {"field": "spec.snapshot_id", "template": found.snapshot.template})
        full.driver, full.snapshot_of = driver, found.snapshot.sandbox_id
        return full

    async def narrowed(self, spec: pb.SandboxSpec, want: Want) -> Want:
        """Return `want` with only the node that has the spec's snapshot, where it names one."""
        if not spec.snapshot_id:
            return want
        node = (await self.find(spec.snapshot_id)).node
        return replace(want, nodes=_only(want, node.node_id))


def _only(want: Want, node_id: str) -> list[NodeWant]:
    left = [node for node in want.nodes if node.id == node_id]
    if not left:
        raise RuntimeUnavailable(f"node {node_id}, which has the snapshot, takes none now", {"fix": "try again later"})
    return left


def _counted(found: Found) -> CountedSnapshot:
    one, labels = found.snapshot, found.snapshot.record_labels
    owners = labels.get(_PROJECT, ""), labels.get(_CALLER, "")
    return CountedSnapshot(one.snapshot_id, found.node.node_id, *owners, one.size_bytes)


def _new_id() -> str:
    return "snap_" + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26]


def _checked(snapshot_id: str) -> str:
    if not _ID.fullmatch(snapshot_id):
        rule = "must be snap_ and 1 to 64 lowercase letters and digits"
        raise InvalidArgument(f"snapshot_id {rule}", {"field": "snapshot_id"})
    return snapshot_id


def _checked_ttl(request: pb.CreateSnapshotRequest) -> Duration | None:
    if not request.HasField("ttl"):
        return None
    if not timedelta() < request.ttl.ToTimedelta() <= _LONGEST_TTL:
        message = f"ttl must be more than 0 and at most {_LONGEST_TTL.days} days; without it a snapshot stays"
        raise InvalidArgument(message, {"field": "ttl"})
    return request.ttl


def _as_message(found: Found) -> pb.Snapshot:
    snapshot = found.snapshot
    return pb.Snapshot(
        snapshot_id=snapshot.snapshot_id,
        sandbox_id=snapshot.sandbox_id,
        template=snapshot.template,
        size_bytes=snapshot.size_bytes,
        checksum=snapshot.checksum,
        create_time=snapshot.create_time,
        node_id=found.node.node_id,
        driver=found.node.info.name if found.node.info else "",
        expire_time=snapshot.expire_time if snapshot.HasField("expire_time") else None,
    )
