"""The audit of a mesh."""

from __future__ import annotations

import builtins
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.audit.v1 import audit_pb2
from sandmesh.mesh.messages import read_audit_entry
from sandmesh.mesh.records import AuditEntry
from sandmesh.mesh.rpc import Rpc
from sandmesh.results import Listing


class AuditAsync:
    """Who changed what in a mesh, and who was refused: `mesh.audit`. It needs the scope admin."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def list(
        self,
        *,
        user_id: str = "",
        sandbox_id: str = "",
        method: str = "",
        outcome: str = "",
        since: datetime | None = None,
        limit: int = 100,
    ) -> builtins.list[AuditEntry]:
        """Return the newest entries that fit all filters, the newest last; `limit` is at most 1000.

        Raises:
            PermissionDenied: The token's scope is not admin.
        """
        request = audit_pb2.ListAuditRequest(
            user_id=user_id, sandbox_id=sandbox_id, method=method, outcome=outcome, limit=limit
        )
        if since is not None:
            stamp = Timestamp()
            stamp.FromDatetime(since)
            request.since.CopyFrom(stamp)
        response = await self._rpc.send(lambda stubs: stubs.audit.ListAudit, request)
        return Listing(read_audit_entry(entry) for entry in response.entries)
