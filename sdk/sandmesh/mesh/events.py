"""What happened to the sandboxes of a mesh."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.mesh.messages import read_event
from sandmesh.mesh.records import SandboxEvent
from sandmesh.mesh.rpc import Rpc, Subscription
from sandmesh.results import Listing
from sandmesh.shared.wire_errors import translated

# Before every event of a mesh.
BEGINNING = "0-0"


class EventsAsync:
    """The events of a mesh: `mesh.events`. They outlive their sandboxes for a while."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def list(
        self, sandbox_id: str | None = None, *, limit: int = 100, after: str | None = None
    ) -> builtins.list[SandboxEvent]:
        """Return the newest events, or the first ones after the event `after`, the oldest first.

        `limit` is 1 to 1000. None as `sandbox_id`: of every sandbox that the caller may see.

        Raises:
            InvalidArgument: `limit` or `after` is out of range.
        """
        request = pb.ListEventsRequest(sandbox_id=sandbox_id or "", page_size=limit, after_event_id=after or "")
        response = await self._rpc.send(lambda stubs: stubs.sandboxes.ListEvents, request)
        return Listing(read_event(event) for event in response.events)

    def follow(self, sandbox_id: str | None = None, *, after: str | None = None) -> Subscription[SandboxEvent]:
        """Return events as they happen: those after the event `after`, by default from now on.

        The iteration raises StoreUnavailable or MeshUnavailable where it is cut off; follow again after the last event.
        """
        request = pb.WatchSandboxesRequest(sandbox_id=sandbox_id or "", after_event_id=after or "")
        return Subscription(self._follow(request))

    async def _follow(self, request: pb.WatchSandboxesRequest) -> AsyncGenerator[SandboxEvent]:
        with translated():
            responses = self._rpc.connection().follow(lambda stubs: stubs.sandboxes.WatchSandboxes, request)
            async for response in responses:
                yield read_event(response.event)
