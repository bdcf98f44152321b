"""The part of a driver that is about what it knows already: its sandboxes are in memory, as something reports them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Protocol

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing, SandboxNotFound
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.api.requirements import check_id


class View(Protocol):
    """The sandboxes of one mesh as they are now."""

    def find(self, sandbox_id: str) -> pb.RuntimeSandbox | None:
        """Return a sandbox, None if nothing of it is left."""
        ...

    def all(self) -> list[pb.RuntimeSandbox]:
        """Return every sandbox that has left anything, by id."""
        ...


class ViewedSandboxes:
    """The methods of a driver that inspects, lists and watches by a view, and has neither pauses nor snapshots."""

    def __init__(self, name: str, mesh_id: str, view: View, changes: Watched) -> None:
        self._name = name
        self._mesh_id = mesh_id
        self._view = view
        self._changes = changes

    def _existing(self, sandbox_id: str) -> pb.RuntimeSandbox:
        """Return a sandbox.

        Raises:
            SandboxNotFound: Nothing of it is left.
        """
        check_id(sandbox_id)
        sandbox = self._view.find(sandbox_id)
        if sandbox is None:
            raise SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return sandbox

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Return what the runtime knows of a sandbox."""
        return pb.InspectSandboxResponse(sandbox=self._existing(request.sandbox_id))

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox of the mesh that has left anything."""
        return pb.ListSandboxesResponse(sandboxes=self._view.all() if request.mesh_id == self._mesh_id else [])

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        with self._changes.watching() as changes:
            present = await self.list_sandboxes(pb.ListSandboxesRequest(mesh_id=request.mesh_id))
            for sandbox in present.sandboxes:
                yield pb.WatchSandboxesResponse(sandbox=sandbox)
            yield pb.WatchSandboxesResponse(synced=True)
            async with aclosing(changes.follow()) as ids:
                async for sandbox_id in ids:
                    if request.mesh_id == self._mesh_id:
                        ended = pb.RUNTIME_STATE_ENDED
                        gone = pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=self._mesh_id, state=ended)
                        yield pb.WatchSandboxesResponse(sandbox=self._view.find(sandbox_id) or gone)

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Refuse to freeze a sandbox."""
        self._existing(request.sandbox_id)
        raise self._missing("pause")

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Refuse to resume a sandbox."""
        self._existing(request.sandbox_id)
        raise self._missing("pause")

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Refuse to take a snapshot."""
        raise self._missing("snapshot")

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """Return no snapshots."""
        return pb.ListSnapshotsResponse()

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Refuse to delete a snapshot."""
        raise self._missing("snapshot")

    def _missing(self, needs: str) -> CapabilityMissing:
        return CapabilityMissing(f"the {self._name} driver has no {needs}: choose another driver", {"needs": needs})
