"""A real store, a real driver over child processes, and allocators served by gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from benchmarks.fleet.nodes import SimulatedNode
from google.protobuf.duration_pb2 import Duration
from pydantic import SecretStr

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import Recovering
from sandmesh.shared.wire_errors import translated
from sandmeshd.allocator import AllocatorSettings, open_allocator
from sandmeshd.auth.channels import open_channel
from sandmeshd.runtime.rpc.registrations import sandbox_service
from sandmeshd.runtime.rpc.server import open_server
from sandmeshd.store import Store, StoreSettings, open_store
from tests.unit.allocator.process_driver import ProcessDriver, Runtime
from tests.unit.store.servers import external_server
from tests.unit.store.waiting import until

FAST = {"sweep_seconds": 0.05, "poll_seconds": 0.1}


def _duration(seconds: float) -> Duration:
    return Duration(nanos=int(seconds % 1 * 1e9), seconds=int(seconds))


@dataclass(frozen=True)
class Allocator:
    """A caller of one allocator."""

    stub: sandbox_pb2_grpc.SandboxServiceAsyncStub

    async def claim(
        self,
        session: str,
        template: str = "base",
        *,
        slot: str = "",
        ports: int = 0,
        ttl: float | None = None,
        timeout: float = 20.0,
        spec: pb.SandboxSpec | None = None,
        idle: float | None = None,
        user: str = "",
        batch: pb.Batch | None = None,
    ) -> pb.ClaimSandboxResponse:
        request = pb.ClaimSandboxRequest(
            spec=spec or pb.SandboxSpec(template=template, port_count=ports),
            session_key=session,
            slot=slot,
            user_id=user,
            session_id=session,
            batch=batch,
        )
        if ttl is not None:
            request.ttl.CopyFrom(_duration(ttl))
        if idle is not None:
            request.idle_timeout.CopyFrom(_duration(idle))
        with translated():
            return await self.stub.ClaimSandbox(request, timeout=timeout)

    async def claim_when_recovered(self, session: str) -> pb.Sandbox:
        """Claim again and again as a client does while records are being rebuilt."""
        while True:
            try:
                return (await self.claim(session)).sandbox
            except Recovering as error:
                await asyncio.sleep(error.retry_after or 0.01)

    async def release(self, sandbox: pb.Sandbox, token: int | None = None) -> None:
        token = sandbox.lease.fencing_token if token is None else token
        with translated():
            await self.stub.ReleaseSandbox(pb.ReleaseSandboxRequest(sandbox_id=sandbox.sandbox_id, fencing_token=token))

    async def renew(self, sandbox: pb.Sandbox, token: int | None = None) -> pb.Lease:
        token = sandbox.lease.fencing_token if token is None else token
        with translated():
            request = pb.RenewLeaseRequest(sandbox_id=sandbox.sandbox_id, fencing_token=token)
            return (await self.stub.RenewLease(request)).lease

    async def get(self, sandbox_id: str) -> pb.Sandbox:
        with translated():
            return (await self.stub.GetSandbox(pb.GetSandboxRequest(sandbox_id=sandbox_id))).sandbox

    async def resolve(self, sandbox_id: str) -> pb.ResolveSandboxResponse:
        with translated():
            return await self.stub.ResolveSandbox(pb.ResolveSandboxRequest(sandbox_id=sandbox_id))

    async def list(self, **fields: object) -> pb.ListSandboxesResponse:
        with translated():
            return await self.stub.ListSandboxes(pb.ListSandboxesRequest(**fields))  # type: ignore[arg-type]  # by name

    async def capacity(self) -> pb.GetCapacityResponse:
        with translated():
            return await self.stub.GetCapacity(pb.GetCapacityRequest())

    async def pause(self, sandbox: pb.Sandbox, token: int) -> pb.Sandbox:
        request = pb.PauseSandboxRequest(sandbox_id=sandbox.sandbox_id, fencing_token=token)
        with translated():
            return (await self.stub.PauseSandbox(request)).sandbox

    async def resume(self, sandbox: pb.Sandbox, token: int) -> pb.Sandbox:
        request = pb.ResumeSandboxRequest(sandbox_id=sandbox.sandbox_id, fencing_token=token)
        with translated():
            return (await self.stub.ResumeSandbox(request)).sandbox

    async def snapshot(self, sandbox: pb.Sandbox, token: int | None = None, name: str = "") -> pb.Snapshot:
        token = sandbox.lease.fencing_token if token is None else token
        request = pb.CreateSnapshotRequest(sandbox_id=sandbox.sandbox_id, fencing_token=token, snapshot_id=name)
        with translated():
            return (await self.stub.CreateSnapshot(request)).snapshot

    async def snapshots(self) -> pb.ListSnapshotsResponse:
        with translated():
            return await self.stub.ListSnapshots(pb.ListSnapshotsRequest())

    async def delete_snapshot(self, name: str) -> None:
        with translated():
            await self.stub.DeleteSnapshot(pb.DeleteSnapshotRequest(snapshot_id=name))

    async def events(self, sandbox_id: str = "", after: str = "", size: int = 1000) -> Sequence[pb.SandboxEvent]:
        request = pb.ListEventsRequest(sandbox_id=sandbox_id, after_event_id=after, page_size=size)
        with translated():
            return (await self.stub.ListEvents(request)).events

    async def health(self) -> pb.GetMeshHealthResponse:
        with translated():
            return await self.stub.GetMeshHealth(pb.GetMeshHealthRequest())

    async def sweep(self, dry_run: bool) -> Sequence[pb.SweepFinding]:
        with translated():
            return (await self.stub.SweepMesh(pb.SweepMeshRequest(dry_run=dry_run))).findings

    async def until_used(self, count: int) -> None:
        async def reached() -> bool:
            return (await self.capacity()).used == count

        await until(reached)

    async def until_pooled(self, template: str, count: int) -> None:
        async def reached() -> bool:
            return (await self.capacity()).pooled.get(template, 0) == count

        await until(reached)

    async def until_state(self, sandbox_id: str, state: int) -> pb.Sandbox:
        async def reached() -> bool:
            return int((await self.get(sandbox_id)).state) == state

        await until(reached)
        return await self.get(sandbox_id)


@dataclass(frozen=True)
class Mesh:
    """What the allocators of a test share."""

    store: Store
    runtime: Runtime
    folder: Path

    @asynccontextmanager
    async def allocator(self, name: str = "a", **settings: object) -> AsyncGenerator[Allocator]:
        """Run one allocator with a driver and a server of its own."""
        async with self.over({"process": ProcessDriver(self.runtime)}, name, **settings) as opened:
            yield opened

    @asynccontextmanager
    async def over(
        self, drivers: Mapping[str, ProcessDriver] | Mapping[str, SimulatedNode], name: str = "a", **settings: object
    ) -> AsyncGenerator[Allocator]:
        """Run one allocator over the drivers."""
        validated = AllocatorSettings.model_validate({**FAST, **settings})
        address = f"unix://{self.folder}/{name}.sock"
        async with AsyncExitStack() as stack:
            servicer = await stack.enter_async_context(open_allocator(validated, self.store, drivers))
            await stack.enter_async_context(open_server([address], [sandbox_service(servicer)], grace=0))
            channel: grpc.aio.Channel = await stack.enter_async_context(open_channel(address))
            yield Allocator(sandbox_pb2_grpc.SandboxServiceStub(channel))


@pytest.fixture
async def store(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Store]:
    """Run the embedded store, or an external one where the test asks for it by a parameter."""
    async with AsyncExitStack() as stack:
        if getattr(request, "param", "embedded") == "external":
            server = await stack.enter_async_context(external_server(tmp_path))
            settings = StoreSettings(mesh_id="m", url=SecretStr(server.tcp_url))
        else:
            settings = StoreSettings(mesh_id="m", directory=tmp_path / "data", socket=tmp_path / "run" / "s")
        yield await stack.enter_async_context(open_store(settings))


@pytest.fixture
async def mesh(store: Store, tmp_path: Path) -> AsyncGenerator[Mesh]:
    """Return a store and a runtime with ports."""
    runtime = Runtime(ports=(20000, 20199))
    yield Mesh(store, runtime, tmp_path)
    await runtime.close()
