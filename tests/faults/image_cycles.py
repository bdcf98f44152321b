"""Creates and deletes sandboxes with an image while their driver is killed, then looks for what is left of them.

python -m tests.faults.image_cycles --cycles 2000 --kills 40
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver
from sandmeshd.drivers.bubblewrap.identity import LEASES
from sandmeshd.drivers.bubblewrap.images.id_ranges import IDS
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.image_roots import busybox_root, write_image

AT_ONCE = 3
SETTLING_SECONDS = 30.0


def main() -> None:
    """Run what the command line says; the exit code is 1 where something is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=2000, help="how many creates with their deletions (2000)")
    parser.add_argument("--kills", type=int, default=40, help="how often the driver is killed meanwhile (40)")
    parser.add_argument("--work", nargs=3, metavar=("MESH", "IMAGES", "REFERENCE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        asyncio.run(_work(*options.work, endless=options.cycles > 0))
        return
    found = run(options.cycles, options.kills)
    _say("\n".join(found) or "nothing is left")
    sys.exit(1 if found else 0)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(cycles: int, kills: int) -> list[str]:
    """Run so many cycles and kills; return what is left."""
    folder = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    mesh_id = f"cycles-{secrets.token_hex(5)}"
    paths = MeshPaths(mesh_id, default_state_directory(), default_runtime_directory())
    paths.make()
    try:
        reference = write_image(folder / "image", busybox_root())
        asyncio.run(ImageStore(ImageSettings(images=folder / "images"), folder).pull(reference))
        work = (mesh_id, str(folder / "images"), reference)
        uids: set[int] = set()
        for number in range(kills + 1):
            _until_killed(work, max(1, cycles // (kills + 1)), uids)
            _say(f"killed {number + 1} times, {len(uids)} ranges of ids used")
        subprocess.run(_command(work, cycles=0), check=True, timeout=120)
        deadline = time.monotonic() + SETTLING_SECONDS
        while (found := list(_left(paths, uids))) and time.monotonic() < deadline:
            # What ended last is released by processes of its own.
            time.sleep(0.2)
        return found
    finally:
        for path in (folder, paths.state, paths.runtime):
            remove_tree(path)


def _command(work: Sequence[str], cycles: int) -> list[str]:
    return [sys.executable, "-m", "tests.faults.image_cycles", "--cycles", str(cycles), "--work", *work]


def _until_killed(work: Sequence[str], cycles: int, uids: set[int]) -> None:
    """Run a driver for so many cycles, and kill it in the midst of the next ones."""
    with subprocess.Popen(_command(work, cycles), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(cycles):
            uids.add(_next_number(process.stdout))
        time.sleep(random.random() * 0.3)  # noqa: S311 - any moment will do
        process.kill()


def _next_number(lines: IO[str]) -> int:
    """Return the next line that is a number: the others are the driver's log."""
    for line in lines:
        if line.strip().isdecimal():
            return int(line)
    raise AssertionError("the driver ended by itself")


async def _work(mesh_id: str, images: str, reference: str, *, endless: bool) -> None:
    """Delete what an earlier driver has left; then create and delete, and print the first id of each sandbox."""
    paths = MeshPaths(mesh_id, default_state_directory(), default_runtime_directory())
    settings = BubblewrapSettings(paths=paths, image_store=ImageSettings(images=Path(images)))
    async with open_driver(settings) as driver:
        async for _ in driver.prepare_template(pb.PrepareTemplateRequest(template="base")):
            pass
        found = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=mesh_id))
        for sandbox in found.sandboxes:
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=sandbox.sandbox_id))

        async def cycle() -> None:
            spec = sandbox_pb2.SandboxSpec(template="base", image=reference)
            name = f"sb_{secrets.token_hex(8)}"
            while endless:
                request = pb.CreateSandboxRequest(sandbox_id=name, mesh_id=mesh_id, spec=spec)
                made = (await driver.create_sandbox(request)).sandbox
                await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))
                _say(made.enforced["host_uid"])

        await asyncio.gather(*(cycle() for _ in range(AT_ONCE)))


def _left(paths: MeshPaths, uids: set[int]) -> Iterator[str]:
    """Yield what is left of a mesh's sandboxes: mounts, folders, processes, and ranges of ids."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    yield from (f"mount {place}" for place in mounts if paths.mesh_id in place or f"{paths.runtime}/" in place)
    for root in (paths.sandboxes, paths.agents):
        yield from (f"folder {path}" for path in root.iterdir())
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            owner = folder.stat().st_uid
            if any(first <= owner < first + IDS for first in uids):
                yield f"process {folder.name} of uid {owner}"
    for first in uids:
        lease = default_runtime_directory() / LEASES / str(first)
        with suppress(OSError), lease.open("rb") as file:
            # One that is locked is another mesh's by now.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield f"range of ids {first}"


if __name__ == "__main__":
    main()
