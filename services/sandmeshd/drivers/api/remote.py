"""A driver that another process serves, with the interface of one that runs here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import grpc

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.driver.v1 import driver_pb2_grpc
from sandmesh.shared.wire_errors import translated

T = TypeVar("T")


class RemoteDriver:
    """A Driver over a channel; every method raises what the driver at the other end raised."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = driver_pb2_grpc.DriverServiceStub(channel)

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Say what the driver is and can do."""
        with translated():
            return await self._stub.GetInfo(request)

    def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or fetch what a template is made of, saying how far it is."""
        return _followed(self._stub.PrepareTemplate(request))

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Make a sandbox; return when its agent listens."""
        with translated():
            return await self._stub.CreateSandbox(request)

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Say what the runtime knows of a sandbox."""
        with translated():
            return await self._stub.InspectSandbox(request)

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox of a mesh that has left anything."""
        with translated():
            return await self._stub.ListSandboxes(request)

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox and all that it left."""
        with translated():
            return await self._stub.DeleteSandbox(request)

    def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        return _followed(self._stub.WatchSandboxes(request))

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token."""
        with translated():
            return await self._stub.InstallToken(request)

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Give the last words of agent and runtime."""
        with translated():
            return await self._stub.GetLogs(request)

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process."""
        with translated():
            return await self._stub.PauseSandbox(request)

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Let a frozen sandbox run."""
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


async def _followed(call: grpc.aio.UnaryStreamCall[Any, T]) -> AsyncIterator[T]:
    # Who stops between two messages leaves a call that nobody reads, and that never ends by itself.
    try:
        with translated():
            async for response in call:
                yield response
    finally:
        call.cancel()
