"""The composition root of the broker."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmeshd.broker.leases import Leases
from sandmeshd.broker.records import SessionRecords
from sandmeshd.broker.servicer import SessionServicer
from sandmeshd.broker.settings import BrokerSettings
from sandmeshd.store import Store


@asynccontextmanager
async def open_broker(
    settings: BrokerSettings, store: Store, sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub
) -> AsyncGenerator[SessionServicer]:
    """Serve sessions over the allocator that the stub calls, until the block ends; sessions outlive it."""
    servicer = SessionServicer(settings, SessionRecords(store, settings.retention_seconds), Leases(sandboxes))
    try:
        yield servicer
    finally:
        await servicer.close()
