"""The base of drivers that decorate another one: every method forwards to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.contracts.driver import Driver


class ForwardingDriver(Driver):
    """A Driver around another one; what derives from it overrides what it changes."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        return await self._driver.get_info(request)

    def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or fetch what a template is made of, and report progress."""
        return self._driver.prepare_template(request)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent listens."""
        return await self._driver.create_sandbox(request)

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Return what the runtime knows of a sandbox."""
        return await self._driver.inspect_sandbox(request)

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox of a mesh of which anything is left."""
        return await self._driver.list_sandboxes(request)

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox and everything that belongs to it."""
        return await self._driver.delete_sandbox(request)

    def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        return self._driver.watch_sandboxes(request)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token."""
        return await self._driver.install_token(request)

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Put a grant in force, and return the one that is."""
        return await self._driver.change_network(request)

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of the output of agent and runtime."""
        return await self._driver.get_logs(request)

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process."""
        return await self._driver.pause_sandbox(request)

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Thaw a frozen sandbox."""
        return await self._driver.resume_sandbox(request)

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Save workspace and home under one id."""
        return await self._driver.snapshot_sandbox(request)

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List the snapshots of a mesh."""
        return await self._driver.list_snapshots(request)

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot."""
        return await self._driver.delete_snapshot(request)
