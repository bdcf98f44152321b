"""Every attempt of `probes` by root of an image: what succeeds is what that tier is for, and nothing else does."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.conformance.inside import run, run_cell
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.image_layouts import file_entry, make_tar
from tests.image_roots import busybox_root, write_image
from tests.ordinary import run_tests, subordinate_home

from .conftest import IN_A_CELL, PROGRAM, Table, Tables, facts_of, living
from .decoys import Decoys, laid_out
from .probes.every import PROBES

pytestmark = [pytest.mark.needs("busybox"), pytest.mark.needs("uids for sandboxes")]

MEANT = {
    "setuid_mounts": "set-uid programs of the image work",
    "setuid_program": "set-uid programs of the image work",
    "system_directories": "its root can be written",
    "become_root": "it is root",
    "chroot": "root of Debian's packages does it",
    "capabilities": "Docker's, without three",
}
"""Attempts that root of an image succeeds with, and why."""
PARTLY = {
    "user_map": ["['0', '0', '65536']"],
    "proc_settings": ["/proc/mounts"],
    "first_process": ["/proc/1/fd", "/proc/1/map_files", "/proc/1/syscall", "/proc/1/stack"],
}
"""Attempts that succeed only as far as this: it has all ids; that file of a process's own takes no writes; and what it
opens of the first process has nothing to read but the numbers of its descriptors (READ_OF_FIRST)."""
READ_OF_FIRST = """
import contextlib, os
for name in ("syscall", "stack", "environ", "mem", "maps"):
    with contextlib.suppress(OSError):
        print(name, open(f"/proc/1/{name}", "rb").read(1))
for folder in ("fd", "map_files"):
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/1/{folder}"):
            with contextlib.suppress(OSError):
                print(folder, os.readlink(f"/proc/1/{folder}/{name}"))
"""
OF_IMAGE = ["/", "/proc", "/dev", "/dev/pts", "/dev/shm", "/tmp", "/workspace"]


@pytest.fixture(scope="module", params=["exec", "fork"])
def in_image(request: pytest.FixtureRequest) -> Iterator[Tables]:
    """Make all attempts as root of an image, in a sandbox that was started in either way."""
    folder = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    settings = BubblewrapSettings(paths=MeshPaths("none", Path("/none"), Path("/none")))
    try:
        with laid_out(settings.host_uid) as decoys:
            yield asyncio.run(_attempted(folder, decoys, request.param))
    finally:
        remove_tree(folder)


async def _attempted(folder: Path, decoys: Decoys, way: str) -> Tables:
    image = write_image(folder / "image", busybox_root())
    await ImageStore(ImageSettings(images=folder / "images"), folder).pull(image)
    async with living(way, image, folder / "images") as neighbours:
        facts = facts_of(decoys, neighbours)
        paths, other = neighbours.paths, neighbours.folder(neighbours.two).root
        mesh = (paths.state_root, paths.state, paths.runtime, other, folder)
        facts |= {"writable": OF_IMAGE, "hidden": [str(decoys.file), *map(str, mesh)]}
        placed = await run(neighbours.one, f"echo {_packed(facts)} | /bin/busybox base64 -d | /bin/busybox tar -xz")
        assert placed.exit_code == 0, placed.stderr
        first = await run(neighbours.one, "/opt/env/bin/python first.py")
        assert (first.exit_code, first.stdout) == (0, ""), first.stderr
        as_program = await run(neighbours.one, "/opt/env/bin/python -m probes facts.json")
        in_cell = await run_cell(neighbours.one, IN_A_CELL)
    assert as_program.exit_code == 0, as_program.stderr
    assert in_cell.stdout, in_cell
    return Tables(json.loads(as_program.stdout), json.loads(in_cell.stdout))


def _packed(facts: dict[str, object]) -> str:
    """Return the attempts and what they look for, as the base64 of a tar: an ordinary user cannot write them there."""
    files = {f"probes/{path.name}": path.read_bytes() for path in PROGRAM.glob("*.py")}
    files |= {"facts.json": json.dumps(facts).encode(), "first.py": READ_OF_FIRST.encode()}
    return base64.b64encode(gzip.compress(make_tar(*(file_entry(name, data) for name, data in files.items())))).decode()


def check(table: Table) -> None:
    """Check that what succeeded is what is meant to."""
    assert set(PROBES) >= MEANT.keys() | PARTLY.keys()
    beyond = {name: found for name, found in table.items() if found and name not in MEANT}
    assert {name: found for name, found in beyond.items() if not set(found) <= set(PARTLY.get(name, []))} == {}


def test_root_of_an_image_succeeds_with_what_it_is_meant_to(in_image: Tables) -> None:
    check(in_image.program)


def test_root_of_an_image_succeeds_with_no_more_in_a_cell(in_image: Tables) -> None:
    check(in_image.cell)


@pytest.mark.needs("root", "uidmap")
@pytest.mark.timeout(300)
def test_all_of_it_holds_for_root_of_an_ordinary_users_image() -> None:
    with subordinate_home() as home:
        run_tests(home, __file__, "-k", "not ordinary_user")
