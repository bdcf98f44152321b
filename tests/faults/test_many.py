"""Several of each service: any of them may go while sandboxes live and clients work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, Output
from sandmesh.errors import MeshUnavailable
from tests.faults.leftovers import wait_until_clean
from tests.faults.world import World, open_world

LINES = 400


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path, count=2) as made:
        yield made


async def collect(box: BaseSandboxAsync, started: asyncio.Event) -> str:
    """Follow a command that prints for a while."""
    text = ""
    command = f"for i in $(seq {LINES}); do echo line $i; sleep 0.02; done"
    async for event in box.stream("run_shell_command", command=command):
        if isinstance(event, Output):
            text += event.text
            started.set()
    return text


async def restart(world: World, name: str) -> None:
    program = world.programs[name]
    await program.stop()
    await program.start()


@pytest.mark.timeout(240)
async def test_a_rolling_restart_of_everything_is_not_felt(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.addresses()) as box:
        await box.run_ipython_cell("kept = 'still here'")
        started = asyncio.Event()
        following = asyncio.create_task(collect(box, started))
        await started.wait()
        for name in [*world.names("gateway"), *world.names("broker"), *world.names("allocator"), "driver1"]:
            await restart(world, name)
            assert (await box.run_ipython_cell("print(kept)")).stdout == "still here\n"
            async with BaseSandboxAsync(base_url=world.addresses(1)) as other:
                assert (await other.run_ipython_cell("print(6 * 7)")).stdout == "42\n"
        assert await following == "".join(f"line {number}\n" for number in range(1, LINES + 1))
    assert not await wait_until_clean(world, len(world.runtime.inside()))


@pytest.mark.timeout(120)
async def test_a_gateway_that_is_killed_hands_its_clients_calls_to_the_next(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.addresses()) as box:
        started = asyncio.Event()
        following = asyncio.create_task(collect(box, started))
        await started.wait()
        await world.programs["gateway1"].kill(signal.SIGKILL)
        assert await following == "".join(f"line {number}\n" for number in range(1, LINES + 1))
        assert (await box.run_ipython_cell("1+1")).text.strip() == "2"


@pytest.mark.timeout(120)
async def test_without_any_gateway_the_client_says_which_addresses_it_tried(world: World) -> None:
    for name in world.names("gateway"):
        await world.programs[name].stop()
    box = BaseSandboxAsync(base_url=world.addresses(), timeout=5)
    with pytest.raises(MeshUnavailable) as caught:
        await box.start()
    assert all(address in caught.value.facts["address"] for address in world.gateways)
