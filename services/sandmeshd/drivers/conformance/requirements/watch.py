"""What a watch says."""

from __future__ import annotations

import asyncio

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect, expect_equal
from sandmeshd.drivers.conformance.sandbox_end import NOTICE_SECONDS, end_of, kill_init, watched
from sandmeshd.drivers.conformance.subject import Subject


async def a_watch_begins_with_every_sandbox(subject: Subject) -> None:
    """Then says `synced`."""
    async with subject.open() as driver, subject.sandbox(driver) as one, subject.sandbox(driver) as two:
        seen = await _until_synced(driver, subject.mesh_id)
    expect_equal(seen, sorted([one.sandbox_id, two.sandbox_id]), "what came before synced")


async def _until_synced(driver: Driver, mesh_id: str) -> list[str]:
    seen: list[str] = []
    async with asyncio.timeout(NOTICE_SECONDS), watched(driver, mesh_id) as changes:
        async for change in changes:
            if change.synced:
                break
            seen.append(change.sandbox.sandbox_id)
    return sorted(seen)


async def a_watch_tells_of_a_sandbox_that_was_killed(subject: Subject) -> None:
    """Within seconds, with how it ended; it stays listed until it is deleted."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        async with end_of(driver, subject, sandbox.sandbox_id):
            kill_init(subject, sandbox.sandbox_id)
        listed = (await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=subject.mesh_id))).sandboxes
        expect_equal([one.state for one in listed], [pb.RUNTIME_STATE_ENDED], "the listed states")
        expect("9" in listed[0].end_detail, f"how it ended is told as {listed[0].end_detail!r}")


async def a_watch_tells_of_creates_and_deletes(subject: Subject) -> None:
    """RUNNING when it runs, ENDED when it was deleted."""
    async with subject.open() as driver:
        synced = asyncio.Event()
        request = subject.request()
        watch = asyncio.create_task(_states(driver, subject.mesh_id, request.sandbox_id, synced))
        async with asyncio.timeout(NOTICE_SECONDS):
            await synced.wait()
            await driver.create_sandbox(request)
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=request.sandbox_id))
            states = await watch
    expect_equal(states[-1], pb.RUNTIME_STATE_ENDED, "the last state")


async def _states(driver: Driver, mesh_id: str, sandbox_id: str, synced: asyncio.Event) -> list[int]:
    states: list[int] = []
    async with watched(driver, mesh_id) as changes:
        async for change in changes:
            if change.synced:
                synced.set()
            elif change.sandbox.sandbox_id == sandbox_id:
                states.append(change.sandbox.state)
                if states[-1] == pb.RUNTIME_STATE_ENDED:
                    break
    return states
