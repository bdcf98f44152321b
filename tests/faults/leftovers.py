"""What a mesh still has when nobody uses it: records, folders, sockets, processes, groups."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.faults.storm import sandbox_processes
from tests.faults.world import World


async def records(world: World) -> list[str]:
    """Give the records of sandboxes that are not over, and their states."""
    found: list[str] = []
    async with world.store.client() as client:
        async for key in client.scan_iter(match=f"*{{{world.settings.mesh_id}}}*"):
            if await client.type(key) == "hash":
                state = await client.hget(key, "state")
                if state is not None and state != "GONE":
                    found.append(f"record {key} is {state}")
    return found


def folders(world: World) -> list[str]:
    """Give the sandboxes' folders and sockets."""
    paths = world.settings.paths
    return [f"folder {path}" for root in (paths.sandboxes, paths.agents) for path in root.glob("*")]


def groups(world: World) -> list[str]:
    """Give the control groups of the mesh."""
    root = Path("/sys/fs/cgroup")
    found = (path for depth in ("*", "*/*", "*/*/*", "*/*/*/*") for path in root.glob(depth))
    return [f"cgroup {path}" for path in found if world.settings.mesh_id in str(path) and path.is_dir()]


async def look(world: World, idle: int) -> list[str]:
    """Give all that is there beyond `idle` processes of zygotes, which are kept for the next sandbox."""
    processes = sandbox_processes()
    extra = [f"{len(processes)} processes in namespaces, idle there are {idle}"] if len(processes) > idle else []
    return [*await records(world), *folders(world), *groups(world), *extra]


async def wait_until_clean(world: World, idle: int, seconds: float = 60.0) -> list[str]:
    """Wait until nothing is left. Returns: what is left when the time is over."""
    ends = time.monotonic() + seconds
    left = await look(world, idle)
    while left and time.monotonic() < ends:
        await asyncio.sleep(0.5)
        left = await look(world, idle)
    return left
