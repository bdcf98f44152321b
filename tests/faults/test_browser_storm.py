"""Browsers that are created, used and deleted while processes of their sandboxes are killed at random.

SANDMESH_TEST_BROWSER_CYCLES has it run longer: 200 are what the documentation speaks of.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from sandmesh import BrowserSandboxAsync
from sandmesh.errors import SandmeshError
from tests.faults.leftovers import wait_until_clean
from tests.faults.world import World, open_world

CYCLES = int(os.environ.get("SANDMESH_TEST_BROWSER_CYCLES", "20"))
AT_ONCE = 3
VICTIMS = ("nothing", "anything", "the browser", "its driver", "a page", "the sandbox")
INSIDE = {
    "the browser": "pkill -9 -o -f /chromium/",
    "its driver": "pkill -9 -f userland/browser",
    "a page": "pkill -9 -f type=renderer",
}
SECONDS = 60.0 + 30.0 * CYCLES

pytestmark = [pytest.mark.needs("user namespaces"), pytest.mark.needs("chromium"), pytest.mark.timeout(SECONDS)]


async def cycle(world: World, dice: random.Random, outcomes: Counter[str]) -> None:
    """Create a browser, use it while something of it is killed, and delete it."""
    victim = dice.choice(VICTIMS)
    box = BrowserSandboxAsync(base_url=world.addresses(), timeout=120)
    try:
        await box.start()
        await box.fs.write("page.html", "<title>Page</title><p>Hello</p>")
        use = asyncio.create_task(_use(box))
        await asyncio.sleep(dice.uniform(0.0, 1.5))
        await _strike(world, box, victim, dice)
        await use
        outcomes["used"] += 1
    except SandmeshError as error:
        # Of a sandbox that was killed; the others only take a call that fails.
        outcomes[error.reason] += 1
    finally:
        with suppress(SandmeshError):
            await box.close()


async def _use(box: BrowserSandboxAsync) -> None:
    """Open a page until it is there; what is killed meanwhile is a result that says so."""
    while (await box.browser_navigate("file:///workspace/page.html")).is_error:
        pass
    while "Hello" not in (await box.browser_snapshot()).text:
        await box.browser_navigate("file:///workspace/page.html")


async def _strike(world: World, box: BrowserSandboxAsync, victim: str, dice: random.Random) -> None:
    if victim in INSIDE:
        await box.run_shell_command(INSIDE[victim])
    elif victim == "anything":
        with suppress(ProcessLookupError, IndexError):
            os.kill(dice.choice(world.runtime.inside()), signal.SIGKILL)
    elif victim == "the sandbox":
        await box.close()


async def test_browsers_killed_at_random_leave_nothing(tmp_path: Path) -> None:
    dice = random.Random(CYCLES)  # noqa: S311 - the same storm again, not a secret
    outcomes: Counter[str] = Counter()
    left = CYCLES

    async def client(world: World) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await cycle(world, dice, outcomes)

    async with open_world(tmp_path) as world:
        await cycle(world, random.Random(2), Counter())  # noqa: S311 - as above; what starts once has started then
        await wait_until_clean(world, 0, seconds=5.0)
        idle = len(world.runtime.inside())
        await asyncio.gather(*(client(world) for _ in range(AT_ONCE)))
        assert sum(outcomes.values()) == CYCLES
        assert outcomes["used"] > CYCLES // 3, outcomes
        # Shared memory, sockets and profiles are in the sandboxes' own folders and namespaces.
        assert not await wait_until_clean(world, idle), outcomes
