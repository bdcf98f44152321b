"""Standing still, where the driver says that it can; one that cannot must refuse it."""

from __future__ import annotations

import asyncio

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect, expect_equal, expect_error
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.conformance.subject import Subject

STILL_SECONDS = 0.5


async def _state(driver: Driver, sandbox_id: str) -> pb.RuntimeState.ValueType:
    return (await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox_id))).sandbox.state


async def _pause(driver: Driver, sandbox_id: str) -> None:
    await driver.pause_sandbox(pb.PauseSandboxRequest(sandbox_id=sandbox_id))


async def _resume(driver: Driver, sandbox_id: str) -> None:
    await driver.resume_sandbox(pb.ResumeSandboxRequest(sandbox_id=sandbox_id))


async def _can(driver: Driver) -> bool:
    return (await driver.get_info(pb.GetInfoRequest())).capabilities.pause


async def a_paused_sandbox_stands_still_until_it_is_resumed(subject: Subject) -> None:
    """It is reported as paused, does not answer, and goes on where it was; doing either twice is fine."""
    async with subject.open() as driver:
        if not await _can(driver):
            return
        async with subject.sandbox(driver) as sandbox:
            await run(sandbox, "echo kept >/tmp/kept")
            for _ in range(2):
                await _pause(driver, sandbox.sandbox_id)
            expect_equal(await _state(driver, sandbox.sandbox_id), pb.RUNTIME_STATE_PAUSED, "its state")
            asking = asyncio.create_task(run(sandbox, "cat /tmp/kept"))
            answered = (await asyncio.wait([asking], timeout=STILL_SECONDS))[0]
            for _ in range(2):
                await _resume(driver, sandbox.sandbox_id)
            expect(not answered, "it answered while it was paused")
            expect_equal((await asking).stdout, "kept\n", "the answer afterwards")
            expect_equal(await _state(driver, sandbox.sandbox_id), pb.RUNTIME_STATE_RUNNING, "its state afterwards")


async def a_pause_with_files_ends_processes_and_keeps_what_they_wrote(subject: Subject) -> None:
    """Where the driver reports `pause_files`; a mode that it does not report is refused, and nothing is paused."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities
        modes = {
            sandbox_pb2.PAUSE_MODE_FILES: able.pause_files,
            sandbox_pb2.PAUSE_MODE_CHECKPOINT: able.pause_checkpoint,
        }
        for mode in [mode for mode, has in modes.items() if not has]:
            request = pb.PauseSandboxRequest(sandbox_id=sandbox.sandbox_id, mode=mode)
            await expect_error(CapabilityMissing, driver.pause_sandbox(request))
            expect_equal(await _state(driver, sandbox.sandbox_id), pb.RUNTIME_STATE_RUNNING, "its state")
        if not able.pause_files:
            return
        await run(sandbox, "echo kept >/tmp/kept; sleep 3600 >/dev/null 2>&1 &")
        request = pb.PauseSandboxRequest(sandbox_id=sandbox.sandbox_id, mode=sandbox_pb2.PAUSE_MODE_FILES)
        await driver.pause_sandbox(request)
        expect_equal(await _state(driver, sandbox.sandbox_id), pb.RUNTIME_STATE_PAUSED, "its state")
        await _resume(driver, sandbox.sandbox_id)
        found = await run(sandbox, "cat /tmp/kept; grep -l '^sleep' /proc/[0-9]*/comm || echo none")
        expect_equal(found.stdout, "kept\nnone\n", "what is left")


async def a_paused_sandbox_is_deleted_like_others(subject: Subject) -> None:
    """Nothing of it is left."""
    async with subject.open() as driver:
        if not await _can(driver):
            return
        before = subject.leftovers()
        async with subject.sandbox(driver) as sandbox:
            await _pause(driver, sandbox.sandbox_id)
        expect_equal(sorted(subject.leftovers() - before), [], "what is left")
