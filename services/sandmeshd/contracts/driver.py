"""The interface of a driver: the RPCs of DriverService as methods, local or remote alike.

The contract is the text of protos/sandmesh/api/driver/v1/driver.proto; every method raises the errors that it names,
as the exceptions of sandmesh.errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from sandmesh.api.driver.v1 import driver_pb2 as pb


class Driver(Protocol):
    """The one place that knows a runtime."""

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        ...

    def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or fetch what a template is made of, and report progress."""
        ...

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent listens."""
        ...

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Return what the runtime knows of a sandbox."""
        ...

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox of a mesh of which anything is left."""
        ...

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox and everything that belongs to it."""
        ...

    def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        ...

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token."""
        ...

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Put a grant in force, and return the one that is."""
        ...

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of the output of agent and runtime."""
        ...

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process."""
        ...

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Thaw a frozen sandbox."""
        ...

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Save workspace and home under one id."""
        ...

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List the snapshots of a mesh."""
        ...

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot."""
        ...
