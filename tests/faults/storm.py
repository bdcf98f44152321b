"""Kills at random, one after the other, and when each was felt."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from tests.faults.world import World

SETTLE_SECONDS = 1.5
"""How long after a service serves again its clients may still feel that it was away: their pauses between attempts."""
SILENCE_SECONDS = 6.0
"""How long the loss of a whole node is felt: until it has been silent twice."""
AWAY_SECONDS = (2.0, 12.0)
REBUILT_SECONDS = 30.0

Window = tuple[float, float]


@dataclass
class Storm:
    """Kills services, the store, agents, sandboxes and whole nodes of a world at random."""

    world: World
    seed: int
    pause: tuple[float, float] = (0.3, 1.2)
    away: tuple[float, float] = AWAY_SECONDS
    windows: list[Window] = field(default_factory=list[Window])
    """When faults were felt: creates that meet none of these must succeed."""
    course: Sequence[str] = ()
    """What is struck first, each once, in any order."""
    log: list[str] = field(default_factory=list[str])
    struck: Counter[str] = field(default_factory=Counter[str])

    async def rage(self, enough: Callable[[], bool]) -> None:
        """Kill until it is enough; everything runs again when this returns."""
        dice = random.Random(self.seed)  # noqa: S311 - the same storm again, not a secret
        due = dice.sample(self.course, len(self.course))
        while due or not enough():
            await asyncio.sleep(dice.uniform(*self.pause))
            await self.strike(due.pop() if due else dice.choice(self.faults()), dice)

    def faults(self) -> list[str]:
        """List what may be struck, the likelier the oftener."""
        nodes = ["node", "node"] if self.world.shape.nodes > 1 else []
        return [*self.world.programs, "store", "store emptied", *["sandbox"] * 4, *nodes, *self.world.runtime.faults]

    async def strike(self, victim: str, dice: random.Random) -> None:
        """Kill one victim, and start it again where it is a service."""
        began = time.monotonic()
        self.log.append(f"{began:.1f} {victim}")
        self.struck[victim.rstrip("0123456789")] += 1
        if victim == "sandbox":
            self._sandbox(dice)
        elif victim == "node":
            began = await self._node(dice)
        elif victim in self.world.runtime.faults:
            await self.world.runtime.strike(victim, dice)
        elif victim.startswith("store"):
            await self.world.store.restart(dice.uniform(0.0, 0.3), empty=victim != "store")
            await self._rebuilt()
        else:
            await self.world.programs[victim].kill()
            await asyncio.sleep(dice.uniform(0.0, 0.5))
            await self.world.programs[victim].start()
        self.windows.append((began, time.monotonic() + SETTLE_SECONDS))

    def _sandbox(self, dice: random.Random) -> None:
        inside = self.world.runtime.inside()
        if inside:
            with suppress(ProcessLookupError):
                os.kill(dice.choice(inside), signal.SIGKILL)

    async def _node(self, dice: random.Random) -> float:
        """Stop one node for a while; between its loss and its return creates go to the others. Give when it returns."""
        number = dice.randint(1, self.world.shape.nodes)
        began = time.monotonic()
        await self.world.stop_node(number)
        self.windows.append((began, began + SILENCE_SECONDS))
        await asyncio.sleep(dice.uniform(*self.away))
        returns = time.monotonic()
        await self.world.programs[f"driver{number}"].start()
        return returns

    async def _rebuilt(self) -> None:
        """Wait until the records are there again, which a mesh does by itself."""
        prefix = f"sandmesh:{{{self.world.settings.mesh_id}}}"
        ends = time.monotonic() + REBUILT_SECONDS
        async with self.world.store.client() as client:
            while time.monotonic() < ends:
                with suppress(RedisError, OSError):
                    name, generation = await client.mget(f"{prefix}:open", f"{prefix}:generation")
                    if name is not None and name == generation:
                        return
                await asyncio.sleep(0.05)
