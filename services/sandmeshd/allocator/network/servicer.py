"""The RPCs of SandboxService that are about networks."""

from __future__ import annotations

from typing import Any

import grpc
import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmeshd.allocator.network.control import NetworkControl
from sandmeshd.allocator.records.ownership import is_owned, not_found
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.records.records import RecordState

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


class NetworkServicer(sandbox_pb2_grpc.SandboxServiceServicer):
    """Serve what sandboxes may reach; what derives from it serves the rest."""

    def __init__(self, records: RecordStore, network: NetworkControl) -> None:
        self._records = records
        self._network = network

    async def GetNetwork(self, request: pb.GetNetworkRequest, context: Context) -> pb.GetNetworkResponse:
        """Return what a sandbox may reach, and its traffic by host."""
        return await self._network.read(await self._owned(request.sandbox_id))

    async def ChangeNetwork(self, request: pb.ChangeNetworkRequest, context: Context) -> pb.ChangeNetworkResponse:
        """Change what a running sandbox may reach."""
        grant = await self._network.change(await self._owned(request.sandbox_id), request)
        log.info("a sandbox's network was changed", sandbox_id=request.sandbox_id, hosts=list(grant.hosts))
        return pb.ChangeNetworkResponse(grant=grant)

    async def _owned(self, sandbox_id: str) -> RecordState:
        record = await self._records.read(sandbox_id)
        if record is None or not is_owned(record):
            raise not_found(sandbox_id)
        return record
