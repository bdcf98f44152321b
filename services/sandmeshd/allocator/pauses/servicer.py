"""The RPCs that pause and resume sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import InvalidArgument
from sandmeshd.allocator.pauses.control import REQUEST_REASON, Cause, PauseControl
from sandmeshd.allocator.records.ownership import check_owned
from sandmeshd.allocator.records.record_store import RecordStore

Context = grpc.aio.ServicerContext[Any, Any]


class PauseServicer(sandbox_pb2_grpc.SandboxServiceServicer):
    """Serve pauses."""

    def __init__(self, records: RecordStore, pause: PauseControl) -> None:
        self._records = records
        self._pause = pause

    async def PauseSandbox(self, request: pb.PauseSandboxRequest, context: Context) -> pb.PauseSandboxResponse:
        """Pause a sandbox."""
        await check_owned(self._records, request.sandbox_id)
        if request.mode not in pb.PauseMode.values():
            raise InvalidArgument(f"there is no pause mode {request.mode}", {"field": "mode"})
        cause = Cause(mode=request.mode or pb.PAUSE_MODE_MEMORY)
        record = await self._pause.change(request.sandbox_id, request.fencing_token, "PAUSED", cause)
        return pb.PauseSandboxResponse(sandbox=record.sandbox())

    async def ResumeSandbox(self, request: pb.ResumeSandboxRequest, context: Context) -> pb.ResumeSandboxResponse:
        """Resume a paused sandbox."""
        await check_owned(self._records, request.sandbox_id)
        cause = Cause(REQUEST_REASON, "mesh") if request.on_request else Cause()
        record = await self._pause.change(request.sandbox_id, request.fencing_token, "READY", cause)
        return pb.ResumeSandboxResponse(sandbox=record.sandbox())

    async def WatchPauses(
        self, request: pb.WatchPausesRequest, context: Context
    ) -> AsyncIterator[pb.WatchPausesResponse]:
        """Stream the sandboxes that are paused."""
        async with aclosing(self._pause.watch()) as pauses:
            async for sandbox_ids in pauses:
                yield pb.WatchPausesResponse(sandbox_ids=sandbox_ids)
