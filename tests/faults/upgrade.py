"""Upgrade a mesh from one version to the next while sessions of many sandboxes work, and count the calls that failed.

python -m tests.faults.upgrade COMMIT [--sandboxes 20] [--apart]

COMMIT is the earlier version. Half of the sessions are of its SDK and half of this version's, and they call throughout:
the mesh is upgraded, rolled back and upgraded again (`sandmesh down --keep`, `sandmesh up -d`). With `--apart` its
services are processes by themselves, two of each, which are replaced one after the other. It ends with 1 where a call
failed or a sandbox was replaced.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.faults.versions import CLIENT, MESH_ID, Version, check_out, start_mesh, state_variables
from tests.faults.world import World, open_world
from tests.leaks import mark_process

CALM_SECONDS = 5.0
"""How long the sessions call between two changes."""
ENOUGH = {
    "SANDMESH_MAX_SANDBOXES": "60",
    "SANDMESH_DRIVER_RETURN_SECONDS": "25",
    # Of the clients, as docs/operate.md has it for upgrades.
    "SANDMESH_NEW_CALL_SECONDS": "60",
}
MOST_PRINTED = 20
Change = Callable[[], Awaitable[None]]


@dataclass
class Load:
    """The sessions of one version's SDK."""

    version: Version
    process: asyncio.subprocess.Process
    folder: Path

    @classmethod
    async def begin(cls, version: Version, address: str, sessions: int, folder: Path) -> Load:
        """Start them, and return when each has its sandbox."""
        folder.mkdir()  # noqa: ASYNC240 - a directory of its own
        facts = {"sessions": sessions, "prefix": folder.name, "folder": str(folder)}
        with (folder / "errors").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                str(version.python), str(CLIENT), "load", address, env=dict(version.variables), cwd="/",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        load = cls(version, process, folder)
        if process.stdin:
            process.stdin.write(json.dumps(facts).encode())
            process.stdin.close()
        while not (folder / "ready").exists():
            if process.returncode is not None:
                raise RuntimeError(f"{version.name}'s sessions did not begin: {load.errors()}")
            await asyncio.sleep(0.1)
        return load

    def errors(self) -> str:
        """Return the end of what it wrote to its standard error."""
        return (self.folder / "errors").read_text()[-2000:]

    async def end(self) -> dict[str, Any]:
        """Let each session end its round, and return what they counted."""
        (self.folder / "end").touch()
        out, _ = await self.process.communicate()
        if self.process.returncode:
            raise RuntimeError(f"{self.version.name}'s sessions: {self.errors()}")
        counted: dict[str, Any] = json.loads(out.splitlines()[-1])
        return counted


async def under_load(
    versions: Sequence[Version], address: str, sandboxes: int, folder: Path, changes: Sequence[tuple[str, Change]]
) -> list[dict[str, Any]]:
    """Make changes one after the other while sessions of each version call, and return what each version counted."""
    share = sandboxes // len(versions)
    loads = [
        await Load.begin(version, address, share, folder / f"load{number}") for number, version in enumerate(versions)
    ]
    for name, change in changes:
        await asyncio.sleep(CALM_SECONDS)
        began = time.monotonic()
        await change()
        say(f"{name}: {time.monotonic() - began:.1f} s")
    await asyncio.sleep(CALM_SECONDS)
    return [await load.end() for load in loads]


async def one_process(earlier: Version, present: Version, sandboxes: int, folder: Path) -> list[dict[str, Any]]:
    """Upgrade a mesh of one process, roll it back, and upgrade it again."""

    def replace(old: Version, new: Version) -> Change:
        async def change() -> None:
            await asyncio.to_thread(old.run, "down", "--keep")
            await asyncio.to_thread(start_mesh, new)

        return change

    address = await asyncio.to_thread(start_mesh, earlier)
    changes = [
        ("upgraded", replace(earlier, present)),
        ("rolled back", replace(present, earlier)),
        ("upgraded again", replace(earlier, present)),
    ]
    try:
        return await under_load([earlier, present], address, sandboxes, folder, changes)
    finally:
        await asyncio.to_thread(present.run, "down")


async def apart(earlier: Version, present: Version, sandboxes: int, folder: Path) -> list[dict[str, Any]]:
    """Replace services that run apart one after the other: gateways, brokers, allocators, then the driver."""

    def replace(world: World, name: str) -> Change:
        async def change() -> None:
            await world.programs[name].stop()
            world.programs[name].use_interpreter(earlier.python, present.python)
            await world.programs[name].start()

        return change

    async with open_world(folder, count=2, environment=ENOUGH, python=earlier.python) as world:
        order = [name for kind in ("gateway", "broker", "allocator", "driver") for name in world.names(kind)]
        changes = [(name, replace(world, name)) for name in order]
        return await under_load([earlier, present], world.addresses(), sandboxes, folder, changes)


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run it and print what was counted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--sandboxes", type=int, default=20)
    parser.add_argument("--apart", action="store_true", help="services by themselves, replaced one after the other")
    options = parser.parse_args()
    mark_process()
    with tempfile.TemporaryDirectory(prefix="upgrade-") as name:
        folder = Path(name)
        (folder / "storage").mkdir()
        variables = state_variables(folder) | ENOUGH
        try:
            earlier = Version("the earlier version", check_out(options.commit, folder), variables)
            present = Version("this version", Path(sys.executable), variables)
            form = apart if options.apart else one_process
            counted = asyncio.run(form(earlier, present, options.sandboxes, folder))
        finally:
            remove(MeshSettings(mesh_id=MESH_ID).paths)
    for version, found in zip((earlier, present), counted, strict=True):
        say(f"sessions of {version.name}'s SDK: {json.dumps(found | {'failed': len(found['failed'])})}")
        for line in found["failed"][:MOST_PRINTED]:
            say(line)
    sys.exit(1 if any(found["failed"] or found["replaced"] for found in counted) else 0)


if __name__ == "__main__":
    main()
