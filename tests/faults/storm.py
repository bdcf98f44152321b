"""Kills at random, one after the other, and when each was felt."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.world import World
from tests.leaks import mark_process, marked_processes

SETTLE_SECONDS = 1.5
"""How long after a service serves again its clients may still feel that it was away: their pauses between attempts."""


@dataclass
class Storm:
    """Kills services, the store, agents and sandboxes of a world at random."""

    world: World
    seed: int
    pause: tuple[float, float] = (0.3, 1.2)
    windows: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    log: list[str] = field(default_factory=list[str])

    async def rage(self, seconds: float) -> None:
        """Kill for so long; everything runs again when this returns."""
        dice = random.Random(self.seed)  # noqa: S311 - the same storm again, not a secret
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            await asyncio.sleep(dice.uniform(*self.pause))
            await self.strike(dice.choice(self.faults()), dice)

    def faults(self) -> list[str]:
        """Name what may be struck."""
        return [*self.world.programs, "store", "sandbox", "sandbox"]

    async def strike(self, victim: str, dice: random.Random) -> None:
        """Kill one victim, and start it again where it is a service."""
        began = time.monotonic()
        acts: dict[str, Callable[[random.Random], Awaitable[None]]] = {"store": self._store, "sandbox": self._sandbox}
        act = acts.get(victim)
        if act is not None:
            await act(dice)
        else:
            program = self.world.programs[victim]
            await program.kill()
            await asyncio.sleep(dice.uniform(0.0, 0.5))
            await program.start()
        self.windows.append((began, time.monotonic() + SETTLE_SECONDS))
        self.log.append(f"{began:.1f} {victim}")

    async def _store(self, dice: random.Random) -> None:
        await self.world.store.kill()
        await asyncio.sleep(dice.uniform(0.0, 0.3))
        await self.world.store.start()

    async def _sandbox(self, dice: random.Random) -> None:
        inside = sandbox_processes()
        if inside:
            with suppress(ProcessLookupError):
                os.kill(dice.choice(inside), signal.SIGKILL)


def sandbox_processes() -> list[int]:
    """Give the processes of this run that live in a pid namespace of their own: agents, kernels and zygotes."""
    ours = Path("/proc/self/ns/pid").readlink()
    found: list[int] = []
    for pid in marked_processes(mark_process()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/ns/pid").readlink() != ours:
                found.append(pid)
    return found
