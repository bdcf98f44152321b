"""A broker over a real allocator, store and driver, each served by gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.api.session.v1 import session_pb2_grpc
from sandmesh.shared.wire_errors import translated
from sandmeshd.allocator import AllocatorSettings, open_allocator
from sandmeshd.auth.channels import open_channel
from sandmeshd.broker import BrokerSettings, open_broker
from sandmeshd.runtime.rpc.registrations import sandbox_service, session_service
from sandmeshd.runtime.rpc.server import open_server
from sandmeshd.store import Store, StoreSettings, open_store
from tests.unit.allocator.process_driver import ProcessDriver, Runtime
from tests.unit.store.waiting import until


@dataclass(frozen=True)
class Broker:
    """A caller of one broker, and what stands behind it."""

    stub: session_pb2_grpc.SessionServiceAsyncStub
    sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub
    runtime: Runtime
    store: Store

    async def connect(
        self, user: str = "", session: str = "", templates: Sequence[str] = ("base",), timeout: float = 20
    ) -> pb.ConnectSessionResponse:
        slots = [pb.SlotSpec(spec=sandbox_pb2.SandboxSpec(template=name)) for name in templates]
        request = pb.ConnectSessionRequest(user_id=user, session_id=session, slots=slots)
        with translated():
            return await self.stub.ConnectSession(request, timeout=timeout)

    async def get(self, user: str, session: str) -> pb.Session:
        with translated():
            return (await self.stub.GetSession(pb.GetSessionRequest(user_id=user, session_id=session))).session

    async def keep(self, user: str, session: str) -> pb.Session:
        with translated():
            return (await self.stub.KeepSession(pb.KeepSessionRequest(user_id=user, session_id=session))).session

    async def page(self, user: str, page_size: int = 0, token: str = "") -> pb.ListSessionsResponse:
        request = pb.ListSessionsRequest(user_id=user, page_size=page_size, page_token=token)
        with translated():
            return await self.stub.ListSessions(request)

    async def release(self, user: str, session: str, slots: Sequence[str] = ()) -> list[str]:
        request = pb.ReleaseSessionRequest(user_id=user, session_id=session, slots=slots)
        with translated():
            return list((await self.stub.ReleaseSession(request)).sandbox_ids)

    async def until_alive(self, count: int) -> None:
        """Wait until so many sandboxes are there."""
        await until(lambda: len(self.runtime.processes) == count)


@asynccontextmanager
async def run_broker(store: Store, runtime: Runtime, folder: Path, capacity: int = 20) -> AsyncGenerator[Broker]:
    """Serve an allocator and a broker."""
    settings = AllocatorSettings(capacity=capacity, sweep_seconds=0.05, poll_seconds=0.1, create_attempts=1)
    inner, outer = f"unix://{folder}/allocator.sock", f"unix://{folder}/broker.sock"
    async with AsyncExitStack() as stack:
        drivers = {"process": ProcessDriver(runtime)}
        allocator = await stack.enter_async_context(open_allocator(settings, store, drivers))
        await stack.enter_async_context(open_server([inner], [sandbox_service(allocator)], grace=0))
        channel = await stack.enter_async_context(open_channel(inner))
        sandboxes = sandbox_pb2_grpc.SandboxServiceStub(channel)
        servicer = await stack.enter_async_context(open_broker(BrokerSettings(), store, sandboxes))
        await stack.enter_async_context(open_server([outer], [session_service(servicer)], grace=0))
        stub = session_pb2_grpc.SessionServiceStub(await stack.enter_async_context(open_channel(outer)))
        yield Broker(stub, sandboxes, runtime, store)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    """Run the embedded store."""
    settings = StoreSettings(mesh_id="m", directory=tmp_path / "data", socket=tmp_path / "run" / "s")
    async with open_store(settings) as opened:
        yield opened


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime]:
    """Give a runtime and end what runs on it."""
    made = Runtime()
    yield made
    await made.close()


@pytest.fixture
async def broker(store: Store, runtime: Runtime, tmp_path: Path) -> AsyncGenerator[Broker]:
    """Run a broker of a mesh with room."""
    async with run_broker(store, runtime, tmp_path) as running:
        yield running
