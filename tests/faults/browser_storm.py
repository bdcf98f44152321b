"""Browsers that are created, used and deleted while processes of their sandboxes are killed at random."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandmesh import BrowserSandboxAsync
from sandmesh.errors import SandmeshError
from tests.faults.leftovers import wait_until_clean
from tests.faults.world import World, open_world

AT_ONCE = 3
VICTIMS = ("nothing", "anything", "the browser", "its driver", "a page", "the sandbox")
INSIDE = {
    "the browser": "pkill -9 -o -f /chromium/",
    "its driver": "pkill -9 -f userland/browser",
    "a page": "pkill -9 -f type=renderer",
}


@dataclass
class BrowserStorm:
    """What became of a storm's cycles, and what was left when it was over."""

    cycles: int
    seconds: float = 0.0
    struck: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    left: list[str] = field(default_factory=list[str])

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON has it."""
        counts = {"struck": dict(self.struck), "outcomes": dict(self.outcomes)}
        return {"cycles": self.cycles, "seconds": round(self.seconds, 1), **counts, "left": self.left}


async def storm_browsers(folder: Path, cycles: int) -> BrowserStorm:
    """Run so many cycles, a few at a time, in a mesh of their own."""
    dice = random.Random(cycles)  # noqa: S311 - the same storm again, not a secret
    storm, left = BrowserStorm(cycles), cycles

    async def client(world: World) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await _cycle(world, dice, storm)

    async with open_world(folder) as world:
        await _cycle(world, random.Random(2), BrowserStorm(1))  # noqa: S311 - as above; what starts once has started then
        await wait_until_clean(world, 0, seconds=5.0)
        idle, began = len(world.runtime.inside()), time.monotonic()
        await asyncio.gather(*(client(world) for _ in range(AT_ONCE)))
        storm.seconds = time.monotonic() - began
        # Shared memory, sockets and profiles are in the sandboxes' own folders and namespaces.
        storm.left = sorted(await wait_until_clean(world, idle))
    return storm


async def _cycle(world: World, dice: random.Random, storm: BrowserStorm) -> None:
    """Create a browser, use it while something of it is killed, and delete it."""
    victim = dice.choice(VICTIMS)
    storm.struck[victim] += 1
    box = BrowserSandboxAsync(base_url=world.addresses(), timeout=120)
    try:
        await box.start()
        await box.fs.write("page.html", "<title>Page</title><p>Hello</p>")
        use = asyncio.create_task(_use(box))
        await asyncio.sleep(dice.uniform(0.0, 1.5))
        await _strike(world, box, victim, dice)
        await use
        storm.outcomes["used"] += 1
    except SandmeshError as error:
        # Of a sandbox that was killed; the others only take a call that fails.
        storm.outcomes[error.reason] += 1
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
