"""What a mesh still has when nobody uses it: records, counts, leases, folders, sockets, processes, groups."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from tests.faults.world import World

KEPT = frozenset(
    {
        *("open", "generation", "token", "port_cursor", "allocators", "nodes_seen", "pulse", "swept", "audit"),
        *("tomb", "left", "events", "pools", "queue_sequence", "queue_limit", "sandbox", "user", "user_session"),
        "usage",
        "exposed",
        *("snapshots", "snapshot_bytes"),
    }
)
"""Families of keys that a mesh without sandboxes may have: clocks, who lives, the audit, what was used, what runs out
by itself, and counts of snapshots, which are corrected when somebody reads them."""

EXPIRING = frozenset({"tomb", "left", "user_session", "exposed"})


async def records(world: World) -> list[str]:
    """Return the records of sandboxes that are not over with their states, and every count, lease and index."""
    found: list[str] = []
    prefix = f"sandmesh:{{{world.settings.mesh_id}}}:"
    async with world.store.client() as client:
        async for key in client.scan_iter(match=f"{prefix}*", count=1000):
            family = key.removeprefix(prefix).split(":")[0]
            if family == "sandbox":
                state = await client.hget(key, "state")
                if state is not None and state != "GONE":
                    found.append(f"record {key} is {state}")
            elif family not in KEPT:
                found.append(f"key {key}")
            elif (family in ("tomb", "left", "user_session", "exposed") or "usage:day:" in key) and await client.ttl(
                key
            ) == -1:
                found.append(f"key {key} is kept for good")
    return found


def sandboxes(world: World, idle: int) -> list[str]:
    """Return all that there is of sandboxes beside records, beyond `idle` processes."""
    processes = world.runtime.inside()
    extra = [f"{len(processes)} processes in namespaces, idle there are {idle}", *_lines(processes)]
    return [*world.runtime.left(world.settings.paths), *(extra if len(processes) > idle else ())]


def _lines(pids: list[int]) -> list[str]:
    """Return who each is: its number, its parent's, and its command's first words."""
    found: list[str] = []
    for pid in pids:
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            found.append(f"{pid} of {parent}: {command[:160]}")
    return found


async def look(world: World, idle: int) -> list[str]:
    """Return all that is there beyond `idle` processes of zygotes, which are kept for the next sandbox."""
    return [*await records(world), *sandboxes(world, idle)]


async def wait_until_clean(world: World, idle: int, seconds: float = 60.0) -> list[str]:
    """Wait until nothing is left. Returns: what is left when the time is over."""
    ends = time.monotonic() + seconds
    left = await look(world, idle)
    while left and time.monotonic() < ends:
        await asyncio.sleep(0.5)
        left = await look(world, idle)
    return left


async def wait_until_ended(world: World, seconds: float = 60.0) -> list[str]:
    """Wait until nothing is left but records: that of a start that failed is kept. Returns: as `wait_until_clean`."""
    ends = time.monotonic() + seconds
    left = sandboxes(world, 0)
    while left and time.monotonic() < ends:
        await asyncio.sleep(0.2)
        left = sandboxes(world, 0)
    return left
