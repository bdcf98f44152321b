"""The gRPC client of a driver that another process serves, with the same interface."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import grpc

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.driver.v1 import driver_pb2_grpc
from sandmesh.shared.wire_errors import translated
from sandmeshd.runtime.telemetry.phases import add_phases

T = TypeVar("T")


class RemoteDriver:
    """A Driver over a channel; every method raises the errors of the driver at the other end."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = driver_pb2_grpc.DriverServiceStub(channel)

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        with translated():
            return await self._stub.GetInfo(request)

    def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or fetch what a template is made of, and report progress."""
        return _messages(self._stub.PrepareTemplate(request))

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent listens."""
        with translated():
            response = await self._stub.CreateSandbox(request)
        add_phases({phase.name: phase.duration.ToNanoseconds() / 1e9 for phase in response.phases})
        return response

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Return what the runtime knows of a sandbox."""
        with translated():
            return await self._stub.InspectSandbox(request)

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox of a mesh of which anything is left."""
        with translated():
            return await self._stub.ListSandboxes(request)

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox and everything that belongs to it."""
        with translated():
            return await self._stub.DeleteSandbox(request)

    def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        return _messages(self._stub.WatchSandboxes(request))

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token."""
        with translated():
            return await self._stub.InstallToken(request)

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Put a grant in force, and return the one that is."""
        with translated():
            return await self._stub.ChangeNetwork(request)

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of the output of agent and runtime."""
        with translated():
            return await self._stub.GetLogs(request)

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process."""
        with translated():
            return await self._stub.PauseSandbox(request)

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Thaw a frozen sandbox."""
        with translated():
            return await self._stub.ResumeSandbox(request)

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Save workspace and home under one id."""
        with translated():
            return await self._stub.SnapshotSandbox(request)

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List the snapshots of a mesh."""
        with translated():
            return await self._stub.ListSnapshots(request)

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot."""
        with translated():
            return await self._stub.DeleteSnapshot(request)


async def _messages(call: grpc.aio.UnaryStreamCall[Any, T]) -> AsyncIterator[T]:
    # A caller that stops between two messages leaves a call without a reader that never ends by itself.
    try:
        with translated():
            async for response in call:
                yield response
    finally:
        call.cancel()
