"""kill -9 of everything at random while clients create, call and release."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from sandmesh import errors
from tests.faults.leftovers import wait_until_clean
from tests.faults.storm import Storm, sandbox_processes
from tests.faults.workload import Workload
from tests.faults.world import open_world

FULL = os.environ.get("SANDMESH_FAULTS") == "full"
DOCUMENTED = {name for name in dir(errors) if name[:1].isupper()}


@pytest.mark.timeout(7200 if FULL else 300)
async def test_kills_at_random_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    cycles, seconds = (10_000, 1500.0) if FULL else (60, 25.0)
    async with open_world(tmp_path, count=2) as world:
        warm = Workload(world.addresses)
        await warm.run(clients=2, cycles=2)
        assert not warm.account.errors(), warm.account
        assert not await wait_until_clean(world, idle=10)
        idle = len(sandbox_processes())

        storm, work = Storm(world, seed=int(os.environ.get("SANDMESH_SEED", "1"))), Workload(world.addresses)
        calm = asyncio.Event()
        running = asyncio.create_task(work.run(clients=4, cycles=cycles * 100, until=calm))
        await storm.rage(seconds)
        over = time.monotonic()
        await asyncio.sleep(5.0)
        calm.set()
        await running

        late = [cycle for cycle in work.account.cycles if cycle.began > over + 30 and cycle.error]
        clear, succeeded = work.account.creates(storm.windows)
        account = (
            f"{len(work.account.cycles)} cycles, {clear} creates in the clear, {work.account.errors()}, {storm.log}"
        )
        assert not work.account.wrong, work.account.wrong
        assert set(work.account.errors()) <= DOCUMENTED, account
        assert max(work.account.handed_out.values()) == 1
        assert succeeded >= 0.99 * clear, account
        assert not late, account
        assert not await wait_until_clean(world, idle), account
