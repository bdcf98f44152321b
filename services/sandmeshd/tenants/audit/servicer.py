"""AuditService, as its proto specifies it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.audit.v1 import audit_pb2 as pb
from sandmesh.api.audit.v1 import audit_pb2_grpc
from sandmesh.errors import InvalidArgument, PermissionDenied
from sandmeshd.auth.principal import current_principal
from sandmeshd.auth.projects import Projects
from sandmeshd.tenants.audit.records import AuditRecords

Context = grpc.aio.ServicerContext[Any, Any]

_DEFAULT, _MOST = 100, 1000


class AuditServicer(audit_pb2_grpc.AuditServiceServicer):
    """Keep and list entries; refusals are raised as exceptions of sandmesh.errors."""

    def __init__(self, records: AuditRecords, projects: Projects) -> None:
        self._records = records
        self._projects = projects

    async def RecordAudit(self, request: pb.RecordAuditRequest, context: Context) -> pb.RecordAuditResponse:
        """Append entries."""
        await self._records.append(request.entries)
        return pb.RecordAuditResponse()

    async def ListAudit(self, request: pb.ListAuditRequest, context: Context) -> pb.ListAuditResponse:
        """List the newest entries that the filters let through."""
        principal = current_principal()
        if principal.scope == "user" and not principal.project:
            raise PermissionDenied("the audit is for administrators: use a token of the scope admin")
        if request.limit > _MOST:
            raise InvalidArgument(f"limit is at most {_MOST}", {"field": "limit"})
        _check_time(request.since)

        async def fitting(entries: Sequence[pb.AuditEntry]) -> Sequence[pb.AuditEntry]:
            found = [entry for entry in entries if _fits(entry, request)]
            return await self._of_project(found, principal.project) if principal.project else found

        return pb.ListAuditResponse(entries=await self._records.newest(fitting, request.limit or _DEFAULT))

    async def _of_project(self, entries: Sequence[pb.AuditEntry], project: str) -> Sequence[pb.AuditEntry]:
        """Return the entries of a project's users and administrators, and what concerns its sandboxes or itself."""
        users = {entry.user_id for entry in entries} - {""}
        sandboxes = {sandbox_id for entry in entries for sandbox_id in entry.sandbox_ids}
        of_users, of_sandboxes = await self._projects.find(sorted(users), sorted(sandboxes))

        def is_shown(entry: pb.AuditEntry) -> bool:
            named = {entry.project, entry.details.get("project"), of_users.get(entry.user_id)}
            return project in named | {of_sandboxes.get(sandbox_id) for sandbox_id in entry.sandbox_ids}

        return [entry for entry in entries if is_shown(entry)]


def _check_time(since: Timestamp) -> None:
    try:
        since.ToNanoseconds()
    except ValueError:
        raise InvalidArgument("since is a time of the years 1 to 9999", {"field": "since"}) from None


def _fits(entry: pb.AuditEntry, request: pb.ListAuditRequest) -> bool:
    return (
        request.user_id in ("", entry.user_id)
        and (not request.sandbox_id or request.sandbox_id in entry.sandbox_ids)
        and request.method in ("", entry.method, entry.method.partition(".")[2])
        and request.outcome in ("", entry.outcome)
        and (not request.HasField("since") or entry.time.ToNanoseconds() >= request.since.ToNanoseconds())
    )
