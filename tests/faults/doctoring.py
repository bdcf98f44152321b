"""What `sandmesh doctor --mesh` says of a world, as an operator runs it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.world import World


@dataclass(frozen=True)
class Found:
    """One line of the doctor's."""

    name: str
    health: str
    seen: str
    fix: str


async def doctor(world: World, *more: str) -> tuple[int, str]:
    """Run it against the first gateway. Returns: its exit code and what it printed."""
    command = (sys.executable, "-m", "sandmeshd.cli.user", "doctor", "--mesh", "--base-url", world.gateways[0], *more)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "SANDMESH_MESH_ID": world.settings.mesh_id}
    )
    printed, _ = await process.communicate()
    return process.returncode or 0, printed.decode()


async def findings(world: World) -> list[Found]:
    """Give what it finds."""
    _, printed = await doctor(world, "-o", "json")
    return [Found(one["name"], one["health"], one["seen"], one["fix"]) for one in json.loads(printed)]


async def until_told(world: World, wanted: Callable[[Found], bool], seconds: float = 90.0) -> Found:
    """Run it again and again until one of its lines is as wanted, and give that."""
    async with asyncio.timeout(seconds):
        while True:
            for found in await findings(world):
                if wanted(found):
                    return found
            await asyncio.sleep(0.3)


async def until_well(world: World, *names: str, seconds: float = 90.0) -> None:
    """Run it again and again until it has nothing to say of store, clock and nodes but that they are well."""
    async with asyncio.timeout(seconds):
        while True:
            wrong = [one for one in await findings(world) if one.health in ("warning", "problem")]
            if not [one for one in wrong if one.name in names or one.name.startswith("node")]:
                return
            await asyncio.sleep(0.3)
