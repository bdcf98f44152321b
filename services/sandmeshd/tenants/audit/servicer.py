"""AuditService, as its proto specifies it."""

from __future__ import annotations

from typing import Any

import grpc

from sandmesh.api.audit.v1 import audit_pb2 as pb
from sandmesh.api.audit.v1 import audit_pb2_grpc
from sandmesh.errors import InvalidArgument, PermissionDenied
from sandmeshd.auth.principal import current_principal
from sandmeshd.tenants.audit.records import AuditRecords

Context = grpc.aio.ServicerContext[Any, Any]

_DEFAULT, _MOST = 100, 1000


class AuditServicer(audit_pb2_grpc.AuditServiceServicer):
    """Keep and list entries; refusals are raised as exceptions of sandmesh.errors."""

    def __init__(self, records: AuditRecords) -> None:
        self._records = records

    async def RecordAudit(self, request: pb.RecordAuditRequest, context: Context) -> pb.RecordAuditResponse:
        """Append entries."""
        await self._records.append(request.entries)
        return pb.RecordAuditResponse()

    async def ListAudit(self, request: pb.ListAuditRequest, context: Context) -> pb.ListAuditResponse:
        """List the newest entries that the filters let through."""
        if current_principal().scope == "user":
            raise PermissionDenied("the audit is for administrators: use a token of the scope admin")
        if request.limit > _MOST:
            raise InvalidArgument(f"limit is at most {_MOST}", {"field": "limit"})
        entries = await self._records.newest(lambda entry: _fits(entry, request), request.limit or _DEFAULT)
        return pb.ListAuditResponse(entries=entries)


def _fits(entry: pb.AuditEntry, request: pb.ListAuditRequest) -> bool:
    return (
        request.user_id in ("", entry.user_id)
        and (not request.sandbox_id or request.sandbox_id in entry.sandbox_ids)
        and request.method in ("", entry.method, entry.method.partition(".")[2])
        and request.outcome in ("", entry.outcome)
        and (not request.HasField("since") or entry.time.ToNanoseconds() >= request.since.ToNanoseconds())
    )
