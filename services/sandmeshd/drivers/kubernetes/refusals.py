"""What pods cannot do: they neither stand still nor are saved."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.kubernetes.view import View


class WithoutSnapshots:
    """The methods of a driver that has neither pauses nor snapshots."""

    def __init__(self, view: View) -> None:
        self._of = view

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Refuse to freeze a sandbox."""
        self._of.existing(request.sandbox_id)
        raise _missing("pause")

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Refuse to resume a sandbox."""
        self._of.existing(request.sandbox_id)
        raise _missing("pause")

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Refuse to take a snapshot."""
        raise _missing("snapshot")

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """Return no snapshots."""
        return pb.ListSnapshotsResponse()

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Refuse to delete a snapshot."""
        raise _missing("snapshot")


def _missing(needs: str) -> CapabilityMissing:
    return CapabilityMissing(f"the kubernetes driver has no {needs}: choose another driver", {"needs": needs})
