"""Snapshots on a node's disk: whole or not at all, checked, and nothing of one that was cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import AlreadyExists, InvalidArgument, SnapshotDamaged, SnapshotNotFound, TooLarge
from sandmeshd.drivers.snapshots.archive import SnapshotArchive

LIMIT = 4 << 20
DATA = bytes(range(256)) * 9000
# It takes one and stops in the middle, for ever.
PROGRAM = """
import asyncio, sys
from pathlib import Path
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.snapshots.archive import SnapshotArchive

async def stream():
    yield b"x" * (2 << 20)
    print("half", flush=True)
    await asyncio.Event().wait()

asyncio.run(SnapshotArchive(Path(sys.argv[1]), 4 << 20).save(pb.RuntimeSnapshot(snapshot_id="snap_a"), stream()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


async def stream(data: bytes = DATA, fails: bool = False) -> AsyncGenerator[bytes]:
    for at in range(0, len(data), 100_000):
        yield data[at : at + 100_000]
    if fails:
        raise ConnectionResetError("its sandbox is gone")


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def named(name: str = "snap_a") -> pb.RuntimeSnapshot:
    return pb.RuntimeSnapshot(snapshot_id=name, template="base", record_labels={"session": "s"})


async def read(kept: SnapshotArchive, name: str = "snap_a") -> bytes:
    found = kept.find(name)
    assert found is not None
    return b"".join([piece async for piece in kept.stream(found)])


async def test_what_is_saved_comes_back_until_it_is_removed(folder: Path) -> None:
    kept = SnapshotArchive(folder, LIMIT)
    saved = await kept.save(named(), stream())
    assert (saved.size_bytes, kept.all()) == (len(DATA), [saved])
    assert await read(SnapshotArchive(folder, LIMIT)) == DATA
    with pytest.raises(AlreadyExists):
        await kept.save(named(), stream(b"other"))
    assert await read(kept) == DATA
    await kept.remove("snap_a")
    await kept.remove("snap_a")
    assert kept.find("snap_a") is None
    assert left(folder) == []


async def test_one_whose_time_is_over_is_not_there_and_a_node_that_starts_removes_it(folder: Path) -> None:
    kept = SnapshotArchive(folder, LIMIT)
    await kept.save(named(), stream(b"over"), timedelta(microseconds=1))
    later = await kept.save(named("snap_b"), stream(b"later"), timedelta(days=1))
    assert kept.find("snap_a") is None
    assert kept.all() == [later]
    SnapshotArchive(folder, LIMIT).sweep()
    assert left(folder) == ["snap_b"]


async def test_whoever_reads_a_damaged_one_never_gets_all_of_it(folder: Path) -> None:
    kept = SnapshotArchive(folder, LIMIT)
    saved = await kept.save(named(), stream())
    saved.checksum = "sha256:" + "0" * 64
    got: list[bytes] = []
    async with aclosing(kept.stream(saved)) as pieces:
        with pytest.raises(SnapshotDamaged):
            await _collect(pieces, got)
    assert len(b"".join(got)) < len(DATA)


async def _collect(pieces: AsyncGenerator[bytes], got: list[bytes]) -> None:
    async for piece in pieces:
        got += [piece]


@pytest.mark.parametrize("damage", ["flipped", "cut", "longer", "gone", "facts"])
async def test_a_damaged_one_is_refused_before_its_last_byte(folder: Path, damage: str) -> None:
    kept = SnapshotArchive(folder, LIMIT)
    await kept.save(named(), stream())
    files, facts = folder / "snap_a" / "files.tar", folder / "snap_a" / "snapshot.json"
    content = files.read_bytes()
    if damage == "facts":
        facts.write_bytes(facts.read_bytes().replace(b"base", b"bass"))
    elif damage == "gone":
        files.unlink()
    else:
        flipped = bytes([content[5] ^ 1]).join((content[:5], content[6:]))
        files.write_bytes({"flipped": flipped, "cut": content[:-1], "longer": content + b"x"}[damage])
    with pytest.raises((SnapshotDamaged, SnapshotNotFound), match="snap_a"):
        await read(kept)
    await kept.remove("snap_a")
    assert left(folder) == []


async def test_what_fails_or_is_too_large_leaves_nothing(folder: Path) -> None:
    kept = SnapshotArchive(folder, LIMIT)
    with pytest.raises(TooLarge, match="SANDMESH_SNAPSHOT_LIMIT"):
        await kept.save(named(), stream(bytes(LIMIT + 1)))
    with pytest.raises(ConnectionResetError):
        await kept.save(named(), stream(fails=True))
    for bad in ("../up", "", ".hidden", "a/b"):
        with pytest.raises(InvalidArgument):
            kept.find(bad)
    assert left(folder) == []


def test_a_driver_that_is_killed_in_the_middle_leaves_nothing_once_it_is_back(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"half\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = SnapshotArchive(folder, LIMIT)
    assert [name[:7] for name in left(folder)] == [".fresh-"]
    assert (kept.all(), kept.find("snap_a")) == ([], None)
    kept.sweep()
    assert left(folder) == []
