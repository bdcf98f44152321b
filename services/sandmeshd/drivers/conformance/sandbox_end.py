"""Ends sandboxes behind a driver's back, and waits until it says so."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import cast

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect
from sandmeshd.drivers.conformance.subject import Subject

# Far more than a driver takes, also on a node that is busy with much else.
NOTICE_SECONDS = 60.0


def kill_init(subject: Subject, sandbox_id: str) -> None:
    """Kill a sandbox's PID 1."""
    os.kill(subject.boundary.processes(sandbox_id)[0], signal.SIGKILL)


@asynccontextmanager
async def end_of(driver: Driver, subject: Subject, sandbox_id: str) -> AsyncGenerator[None]:
    """Watch, run the block, and wait until the watch says that a sandbox ended, and how."""
    synced = asyncio.Event()
    watch = asyncio.create_task(_ended(driver, subject.mesh_id, sandbox_id, synced))
    try:
        async with asyncio.timeout(NOTICE_SECONDS):
            await synced.wait()
            yield
            sandbox = await watch
    finally:
        watch.cancel()
    expect(bool(sandbox.end_detail), "it is not said how it ended")


def watched(driver: Driver, mesh_id: str) -> AbstractAsyncContextManager[AsyncGenerator[pb.WatchSandboxesResponse]]:
    """Watch a driver's sandboxes until the block ends."""
    changes = driver.watch_sandboxes(pb.WatchSandboxesRequest(mesh_id=mesh_id))
    # Every driver's watch is a generator.
    return aclosing(cast("AsyncGenerator[pb.WatchSandboxesResponse]", changes))


async def _ended(driver: Driver, mesh_id: str, sandbox_id: str, synced: asyncio.Event) -> pb.RuntimeSandbox:
    async with watched(driver, mesh_id) as changes:
        async for change in changes:
            if change.synced:
                synced.set()
            if change.sandbox.sandbox_id == sandbox_id and change.sandbox.state == pb.RUNTIME_STATE_ENDED:
                return change.sandbox
    raise AssertionError("the watch ended")
