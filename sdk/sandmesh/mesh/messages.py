"""Reads the mesh's messages as the records of `sandmesh.mesh`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh._client.messages import EXPOSURE_KINDS, read_network, read_state
from sandmesh.api.audit.v1 import audit_pb2
from sandmesh.api.port.v1 import port_pb2
from sandmesh.api.quota.v1 import quota_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.token.v1 import token_pb2
from sandmesh.inputs import Limits
from sandmesh.mesh.records import (
    AuditEntry,
    Capacity,
    Lease,
    MeshHealth,
    NodeHealth,
    PortInfo,
    Preparation,
    QuotaInfo,
    SandboxEvent,
    SandboxInfo,
    Scope,
    SnapshotInfo,
    SweepFinding,
    SweepReport,
    TemplateInfo,
    TemplateOnNode,
    TokenInfo,
    Trouble,
)

_SCOPES: dict[int, Scope] = {
    token_pb2.SCOPE_USER: "user",
    token_pb2.SCOPE_ADMIN: "admin",
    token_pb2.SCOPE_READ_ONLY: "read-only",
    token_pb2.SCOPE_SANDBOX: "sandbox",
    token_pb2.SCOPE_PROJECT_ADMIN: "project-admin",
}
_QUOTA_NAMES = {"memory_bytes": "memory", "cpu_millis": "cpus"}


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(UTC)


def _optional_time(message: Any, field: str) -> datetime | None:
    return _time(getattr(message, field)) if message.HasField(field) else None


def read_sandbox(message: pb.Sandbox) -> SandboxInfo:
    """Read a sandbox's record."""
    spec = message.spec
    return SandboxInfo(
        _message=message,
        sandbox_id=message.sandbox_id,
        template=spec.template,
        image=spec.image,
        state=read_state(message),
        state_reason=message.state_reason,
        created=_time(message.create_time),
        lease=_read_lease(message.lease) if message.HasField("lease") else None,
        labels=dict(spec.labels),
        limits=_read_limits(spec.limits),
        network=read_network(spec.network) if spec.network.mode else None,
        enforced=dict(message.enforced),
        idle_timeout=message.idle_timeout.ToNanoseconds() / 1e9 if message.HasField("idle_timeout") else None,
        on_idle="pause" if message.on_idle == pb.IDLE_ACTION_PAUSE else "release",
        auto_resume=message.auto_resume,
        driver=message.driver,
        node_id=message.node_id,
        user_id=message.user_id,
        session_key=message.session_key,
        slot=message.slot,
        snapshot_id=spec.snapshot_id,
        snapshot_of=spec.snapshot_of,
        cost=message.cost,
    )


def _read_lease(message: pb.Lease) -> Lease:
    return Lease(
        holder=message.holder,
        fencing_token=message.fencing_token,
        expires=_time(message.expire_time),
    )


def _read_limits(message: pb.Limits) -> Limits:
    return Limits(
        memory=message.memory_bytes or None,
        cpus=message.cpu_millis / 1000 or None,
        pids=message.pids or None,
        file_size=message.file_bytes or None,
        disk=message.disk_bytes or None,
    )


def read_event(message: pb.SandboxEvent) -> SandboxEvent:
    """Read an event."""
    return SandboxEvent(
        _message=message,
        event_id=message.event_id,
        sandbox_id=message.sandbox_id,
        time=_time(message.time),
        kind=message.kind,
        reason=message.reason,
        actor=message.actor,
        session_key=message.session_key,
        user_id=message.user_id,
        phases={phase.name: phase.duration.ToNanoseconds() / 1e9 for phase in message.phases},
    )


def read_scope(scope: token_pb2.Scope.ValueType) -> Scope:
    """Read a scope; one of a newer mesh reads as the scope user."""
    return _SCOPES.get(scope, "user")


def read_token(message: token_pb2.Token) -> TokenInfo:
    """Read a token."""
    return TokenInfo(
        _message=message,
        token_id=message.token_id,
        name=message.name,
        scope=read_scope(message.scope),
        user_id=message.user_id,
        created=_time(message.create_time),
        expires=_optional_time(message, "expire_time"),
        last_used=_optional_time(message, "last_use_time"),
        revoked=_optional_time(message, "revoke_time"),
        private_network=message.private_network,
        sandbox_id=message.sandbox_id,
        project=message.project,
    )


def read_audit_entry(message: audit_pb2.AuditEntry) -> AuditEntry:
    """Read an entry of the audit."""
    return AuditEntry(
        _message=message,
        entry_id=message.entry_id,
        time=_time(message.time),
        user_id=message.user_id,
        scope=message.scope,
        token_id=message.token_id,
        peer=message.peer,
        method=message.method,
        outcome=message.outcome,
        sandbox_ids=tuple(message.sandbox_ids),
        session_id=message.session_id,
        details=dict(message.details),
    )


def read_quota(message: quota_pb2.Quota) -> QuotaInfo:
    """Read a quota."""
    return QuotaInfo(
        _message=message,
        project=message.project,
        user_id=message.user_id,
        limits=_read_amounts({field.name: value for field, value in message.limits.ListFields()}),
        use=_read_amounts({field.name: getattr(message.use, field.name) for field in message.use.DESCRIPTOR.fields}),
        user_ids=tuple(message.user_ids),
    )


def _read_amounts(amounts: Mapping[str, int]) -> dict[str, float]:
    named: dict[str, float] = {_QUOTA_NAMES.get(name, name): value for name, value in amounts.items()}
    if "cpus" in named:
        named["cpus"] /= 1000
    return named


def read_snapshot(message: pb.Snapshot) -> SnapshotInfo:
    """Read a snapshot."""
    return SnapshotInfo(
        _message=message,
        snapshot_id=message.snapshot_id,
        sandbox_id=message.sandbox_id,
        sandbox_type=message.template,
        size_bytes=message.size_bytes,
        checksum=message.checksum,
        created=_time(message.create_time),
        expires=_time(message.expire_time) if message.HasField("expire_time") else None,
        node_id=message.node_id,
        driver=message.driver,
    )


def read_port(message: port_pb2.ExposedPort) -> PortInfo:
    """Read an exposed port."""
    return PortInfo(
        _message=message,
        exposure_id=message.exposure_id,
        kind=EXPOSURE_KINDS.get(message.kind, "unknown"),
        port=message.port,
        url=message.url,
        expires=_time(message.expire_time),
        connections=message.connections,
    )


def read_template(message: pb.Template) -> TemplateInfo:
    """Read a template."""
    return TemplateInfo(
        _message=message,
        name=message.name,
        description=message.description,
        tool_groups=tuple(message.tool_groups),
        limits=_read_limits(message.limits),
        network=read_network(message.network) if message.network.mode else None,
        network_fixed=message.network_fixed,
        image=message.image,
        system=tuple(message.system),
        nodes=tuple(_read_template_on_node(node) for node in message.nodes),
    )


def _read_template_on_node(message: pb.TemplateOnNode) -> TemplateOnNode:
    return TemplateOnNode(
        _message=message,
        node_id=message.node_id,
        driver=message.driver,
        prepared=message.prepared,
        generation=message.generation,
    )


def read_capacity(message: pb.GetCapacityResponse) -> Capacity:
    """Read a mesh's capacity."""
    return Capacity(
        _message=message,
        used=message.used,
        limit=message.limit,
        pools=dict(message.pooled),
        templates=dict(message.templates),
        nodes=dict(message.nodes),
        queued=message.queued,
        next_expiry=_optional_time(message, "next_expire_time"),
    )


def read_health(message: pb.GetMeshHealthResponse) -> MeshHealth:
    """Read a mesh's health."""
    troubles = (
        Trouble(
            _message=trouble,
            part=trouble.part,
            node_id=trouble.node_id,
            blocks=trouble.blocks,
            detail=trouble.detail,
            fix=trouble.fix,
        )
        for trouble in message.troubles
    )
    nodes = (
        NodeHealth(
            _message=node, name=node.name, node_id=node.node_id, driver=node.driver, in_rotation=node.in_rotation
        )
        for node in message.nodes
    )
    preparations = (
        Preparation(
            _message=preparation, template=preparation.template, node_id=preparation.node_id, step=preparation.step
        )
        for preparation in message.preparations
    )
    return MeshHealth(_message=message, troubles=tuple(troubles), nodes=tuple(nodes), preparations=tuple(preparations))


def read_sweep(message: pb.SweepMeshResponse) -> SweepReport:
    """Read the result of a sweep."""
    findings = tuple(
        SweepFinding(
            _message=finding,
            kind=finding.kind,
            sandbox_id=finding.sandbox_id,
            node_id=finding.node_id,
            action=finding.action,
            reason=finding.reason,
            since=_optional_time(finding, "since_time"),
        )
        for finding in message.findings
    )
    return SweepReport(_message=message, findings=findings, recovering=message.recovering)
