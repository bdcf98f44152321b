"""The interface of drivers as the allocator calls them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from sandmesh.api.driver.v1 import driver_pb2 as pb


class DriverClient(Protocol):
    """The part of a driver, local or remote, that the allocator uses."""

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        ...

    def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or fetch what a template is made of, and report progress."""
        ...

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent listens."""
        ...

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Delete a sandbox and all that it left."""
        ...

    def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Stream every sandbox, then `synced`, then each change."""
        ...

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Install a fencing token in the agent, which refuses every lower one."""
        ...

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox of a mesh that has left anything."""
        ...

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process."""
        ...

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Resume a paused sandbox."""
        ...

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Put a grant in force, and return the one that is."""
        ...

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of the log of agent and runtime."""
        ...

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Save workspace and home under one id."""
        ...

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List the snapshots of a mesh."""
        ...

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Delete a snapshot."""
        ...
