"""The findings of `sandmesh doctor --mesh` in a world, as an operator runs it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.world import World


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's output."""

    name: str
    health: str
    seen: str
    fix: str


async def doctor(world: World, *more: str) -> tuple[int, str]:
    """Run it against all gateways. Returns: its exit code and what it printed."""
    command = (sys.executable, "-m", "sandmeshd.cli.user", "doctor", "--mesh", "--base-url", world.addresses(), *more)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "SANDMESH_MESH_ID": world.settings.mesh_id}
    )
    printed, _ = await process.communicate()
    return process.returncode or 0, printed.decode()


async def findings(world: World) -> list[Finding]:
    """Return its findings."""
    _, printed = await doctor(world, "-o", "json")
    return [Finding(load["name"], load["health"], load["seen"], load["fix"]) for load in json.loads(printed)]


async def wait_for_finding(world: World, matches: Callable[[Finding], bool], seconds: float = 90.0) -> Finding:
    """Run it repeatedly until a finding matches, and return that."""
    async with asyncio.timeout(seconds):
        while True:
            for finding in await findings(world):
                if matches(finding):
                    return finding
            await asyncio.sleep(0.3)


async def wait_until_well(world: World, *names: str, seconds: float = 90.0) -> None:
    """Run it repeatedly until it has no finding about `names` and nodes."""
    async with asyncio.timeout(seconds):
        while True:
            wrong = [finding for finding in await findings(world) if finding.health in ("warning", "problem")]
            if not [finding for finding in wrong if finding.name in names or finding.name.startswith("node")]:
                return
            await asyncio.sleep(0.3)
