"""The gRPC servicer of any driver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.driver.v1 import driver_pb2_grpc
from sandmeshd.contracts.driver import Driver
from sandmeshd.runtime.rpc.iteration import ended
from sandmeshd.runtime.telemetry.phases import recorded_phases

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class DriverServicer(driver_pb2_grpc.DriverServiceServicer):
    """A driver as DriverService; errors pass as they are raised, for the server's interceptor."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def GetInfo(self, request: pb.GetInfoRequest, context: Context) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        return await self._driver.get_info(request)

    async def PrepareTemplate(
        self, request: pb.PrepareTemplateRequest, context: Context
    ) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or fetch what a template is made of, and report progress."""
        async for response in self._driver.prepare_template(request):
            yield response

    async def CreateSandbox(self, request: pb.CreateSandboxRequest, context: Context) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent listens."""
        with recorded_phases() as phases:
            response = await self._driver.create_sandbox(request)
        for name, seconds in phases.seconds.items():
            response.phases.add(name=name).duration.FromMicroseconds(round(seconds * 1e6))
        return response

    async def InspectSandbox(self, request: pb.InspectSandboxRequest, context: Context) -> pb.InspectSandboxResponse:
        """Return what the runtime knows of a sandbox."""
        return await self._driver.inspect_sandbox(request)

    async def ListSandboxes(self, request: pb.ListSandboxesRequest, context: Context) -> pb.ListSandboxesResponse:
        """List every sandbox of a mesh of which anything is left."""
        return await self._driver.list_sandboxes(request)

    async def DeleteSandbox(self, request: pb.DeleteSandboxRequest, context: Context) -> pb.DeleteSandboxResponse:
        """Remove a sandbox and everything that belongs to it."""
        return await self._driver.delete_sandbox(request)

    async def WatchSandboxes(
        self, request: pb.WatchSandboxesRequest, context: Context
    ) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        async with ended(self._driver.watch_sandboxes(request)) as changes:
            async for response in changes:
                yield response

    async def InstallToken(self, request: pb.InstallTokenRequest, context: Context) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token."""
        return await self._driver.install_token(request)

    async def ChangeNetwork(self, request: pb.ChangeNetworkRequest, context: Context) -> pb.ChangeNetworkResponse:
        """Put a grant in force, and return the one that is."""
        return await self._driver.change_network(request)

    async def GetLogs(self, request: pb.GetLogsRequest, context: Context) -> pb.GetLogsResponse:
        """Return the end of the output of agent and runtime."""
        return await self._driver.get_logs(request)

    async def PauseSandbox(self, request: pb.PauseSandboxRequest, context: Context) -> pb.PauseSandboxResponse:
        """Freeze every process."""
        return await self._driver.pause_sandbox(request)

    async def ResumeSandbox(self, request: pb.ResumeSandboxRequest, context: Context) -> pb.ResumeSandboxResponse:
        """Thaw a frozen sandbox."""
        return await self._driver.resume_sandbox(request)

    async def SnapshotSandbox(self, request: pb.SnapshotSandboxRequest, context: Context) -> pb.SnapshotSandboxResponse:
        """Save workspace and home under one id."""
        return await self._driver.snapshot_sandbox(request)

    async def ListSnapshots(self, request: pb.ListSnapshotsRequest, context: Context) -> pb.ListSnapshotsResponse:
        """List the snapshots of a mesh."""
        return await self._driver.list_snapshots(request)

    async def DeleteSnapshot(self, request: pb.DeleteSnapshotRequest, context: Context) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot."""
        return await self._driver.delete_snapshot(request)
