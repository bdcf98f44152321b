"""A mesh whose services, or whose store, stood still for longer than its leases, as when a laptop sleeps."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmeshd.store.client import prefix_of
from tests.faults.leftovers import wait_until_clean
from tests.faults.world import CLOCK, World, open_world

PAUSE_SECONDS = 13.0
"""Beyond what an allocator at rest lets pass between two of its sweeps."""


async def swept(world: World) -> None:
    """Return when some allocator has swept twice from now on."""
    async with asyncio.timeout(60), world.store.client() as client:
        key = f"{prefix_of(world.settings.mesh_id)}:allocators"
        seen: set[float] = set()
        while len(seen) < 2 * world.shape.services + 1:
            seen |= {score for _, score in await client.zrange(key, 0, -1, withscores=True)}
            await asyncio.sleep(0.1)


def all_services(world: World, number: int) -> None:
    """Send a signal to every service but the drivers and the store."""
    for name in world.names(""):
        if not name.startswith("driver"):
            world.programs[name].signal(number)


@pytest.mark.needs("faketime")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [1, 2])
async def test_a_mesh_that_slept_longer_than_its_leases_keeps_its_sandboxes(tmp_path: Path, count: int) -> None:
    async with open_world(tmp_path, count=count, environment={CLOCK: "+0"}) as world:
        options = {"ttl": 600.0, "idle_timeout": 900.0}
        async with BaseSandboxAsync(base_url=world.addresses(), timeout=10, **options) as box:  # type: ignore[arg-type]
            await box.run_ipython_cell("kept = 1")
            await swept(world)
            all_services(world, signal.SIGSTOP)
            world.external.set_clock("+3h")
            all_services(world, signal.SIGCONT)
            await swept(world)
            assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
            assert (await box.get_info())["state"].endswith("READY")
        assert not await wait_until_clean(world, idle=10)


@pytest.mark.timeout(180)
async def test_a_store_that_slept_alone_ends_no_lease(tmp_path: Path) -> None:
    async with open_world(tmp_path, count=2) as world:
        async with BaseSandboxAsync(base_url=world.addresses(), timeout=10, ttl=PAUSE_SECONDS - 3) as box:
            await box.run_ipython_cell("kept = 1")
            await swept(world)
            world.external.signal(signal.SIGSTOP)
            await until(time.time() + PAUSE_SECONDS)
            world.external.signal(signal.SIGCONT)
            await swept(world)
            assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        assert not await wait_until_clean(world, idle=10)


async def until(moment: float) -> None:
    """Return when the clock has passed a moment."""
    async with asyncio.timeout(moment - time.time() + 10):
        while time.time() < moment:  # noqa: ASYNC110 - nothing happens meanwhile: that is what is tested
            await asyncio.sleep(0.2)
