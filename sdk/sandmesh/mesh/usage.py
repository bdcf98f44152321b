"""The usage of a mesh, by project and by sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.quota.v1 import quota_pb2
from sandmesh.mesh.records import Record
from sandmesh.mesh.rpc import Rpc


@dataclass(frozen=True, kw_only=True)
class Usage(Record):
    """What one project or one sandbox had. Times count while a sandbox is held, also while it is paused."""

    project: str

    sandbox_id: str
    """Empty for a project's."""

    user_id: str
    """The sandbox's user; empty for a project's."""

    template: str
    """The sandbox's; empty for a project's."""

    start: datetime | None
    """From when on the sandbox was held; None for a project's."""

    end: datetime | None
    """Up to when the sandbox is counted; None for a project's."""

    sandbox_seconds: float

    cpu_seconds: float
    """Seconds times the limits of processor time, in cores: what was reserved; without such a limit, none."""

    memory_byte_seconds: float
    """Seconds times the memory limits, in bytes."""

    egress_bytes: int
    """Bytes through the egress proxy, both ways together."""

    cost: float
    """What was rented for it, in the unit of the driver's prices; 0 without them."""


@dataclass(frozen=True, kw_only=True)
class UsageReport(Record):
    """What projects and sandboxes had."""

    projects: tuple[Usage, ...]
    """By name."""

    sandboxes: tuple[Usage, ...]
    """Those that were counted last first."""


class UsageAsync:
    """What projects and sandboxes had: `mesh.usage`. It needs the scope admin."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def list(
        self, *, since: datetime | None = None, project: str = "", sandbox_id: str = "", limit: int = 100
    ) -> UsageReport:
        """Return the usage of projects since a day in UTC began, and of at most `limit` sandboxes, up to 1000.

        Without `since` it is all that was counted. Sandboxes are those that were held since then, each with all it had.

        Raises:
            InvalidArgument: A value does not fit.
            PermissionDenied: The token's scope is not admin.
        """
        request = quota_pb2.ListUsageRequest(project=project, sandbox_id=sandbox_id, limit=limit)
        if since is not None:
            stamp = Timestamp()
            stamp.FromDatetime(since)
            request.since.CopyFrom(stamp)
        response = await self._rpc.send(lambda stubs: stubs.quotas.ListUsage, request)
        projects, sandboxes = (tuple(map(_read, rows)) for rows in (response.projects, response.sandboxes))
        return UsageReport(_message=response, projects=projects, sandboxes=sandboxes)


def _read(message: quota_pb2.Usage) -> Usage:
    return Usage(
        _message=message,
        project=message.project,
        sandbox_id=message.sandbox_id,
        user_id=message.user_id,
        template=message.template,
        start=message.start_time.ToDatetime(UTC) if message.HasField("start_time") else None,
        end=message.end_time.ToDatetime(UTC) if message.HasField("end_time") else None,
        sandbox_seconds=message.sandbox_seconds,
        cpu_seconds=message.cpu_seconds,
        memory_byte_seconds=message.memory_byte_seconds,
        egress_bytes=message.egress_bytes,
        cost=message.cost,
    )
