"""A driver of another process: following its changes ends on both sides with who follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1.sandbox_pb2 import SandboxSpec
from sandmesh.errors import MeshUnavailable, RuntimeUnavailable
from sandmeshd.auth.channels import open_channel
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.runtime.rpc.iteration import ended
from sandmeshd.runtime.rpc.registrations import driver_service
from sandmeshd.runtime.rpc.server import open_server

CREATE = pb.CreateSandboxRequest(sandbox_id="sb_one", mesh_id="m", spec=SandboxSpec(template="base"))


class Watched:
    """The part of a driver that sends changes, one after the other without end."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        try:
            yield pb.WatchSandboxesResponse(synced=True)
            await asyncio.Event().wait()
        finally:
            self.over.set()


async def test_who_stops_between_two_changes_leaves_no_stream_behind(tmp_path: Path) -> None:
    watched, address = Watched(), f"unix://{tmp_path}/d"
    service = driver_service(DriverServicer(cast("Driver", watched)))
    async with open_server([address], [service], grace=0), open_channel(address) as channel:
        changes = RemoteDriver(channel).watch_sandboxes(pb.WatchSandboxesRequest(mesh_id="m"))
        async with ended(changes):
            assert (await anext(changes)).synced
        async with asyncio.timeout(20):
            await watched.over.wait()


class Busy:
    """The part of a driver that never finishes a create."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        self.begun.set()
        await asyncio.Event().wait()
        return pb.CreateSandboxResponse()


async def test_a_request_that_a_driver_s_server_drops_may_go_to_another_driver(tmp_path: Path) -> None:
    busy, address = Busy(), f"unix://{tmp_path}/d"
    service = driver_service(DriverServicer(cast("Driver", busy)))
    async with open_channel(address) as channel:
        async with open_server([address], [service], grace=0):
            creating = asyncio.create_task(RemoteDriver(channel).create_sandbox(CREATE))
            async with asyncio.timeout(20):
                await busy.begun.wait()
        with pytest.raises((RuntimeUnavailable, MeshUnavailable)) as dropped:
            await creating
    assert dropped.value.changed


async def test_who_cancels_a_request_to_a_driver_gets_a_cancellation(tmp_path: Path) -> None:
    busy, address = Busy(), f"unix://{tmp_path}/d"
    service = driver_service(DriverServicer(cast("Driver", busy)))
    async with open_server([address], [service], grace=0), open_channel(address) as channel:
        creating = asyncio.create_task(RemoteDriver(channel).create_sandbox(CREATE))
        async with asyncio.timeout(20):
            await busy.begun.wait()
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
