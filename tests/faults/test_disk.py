"""A full disk below the state directory: said so, and over when there is room again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import DeadlineExceeded, SandmeshError, StoreUnavailable
from sandmeshd.runtime.paths import default_state_directory
from sandmeshd.store import StoreSettings, open_store
from sandmeshd.store.disk_space import DiskSpace
from tests.faults.doctor import Finding, wait_for_finding, wait_until_well
from tests.faults.leftovers import wait_until_clean
from tests.faults.runtimes import Runtime
from tests.faults.world import Shape, World, open_world


@pytest.fixture
def small() -> Iterator[Path]:
    """A state directory on a file system of its own of 24 MiB, with the templates that are built already."""
    # Not below tmp_path, which the sandboxes' uid may not pass.
    state = Path(tempfile.mkdtemp(prefix="small-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=711", "tmpfs", state], check=True)  # noqa: S607
    try:
        cache = state / "cache"
        cache.mkdir(mode=0o711)
        subprocess.run(["mount", "--bind", default_state_directory() / "cache", cache], check=True)  # noqa: S607
        yield state
    finally:
        _unmount(state)
        state.rmdir()


def _unmount(state: Path) -> None:
    """Take it away when nobody uses it any more: a server may end a moment after who had started it."""
    deadline = time.monotonic() + 30
    while True:
        done = subprocess.run(["umount", "-R", state], capture_output=True, text=True, check=False)  # noqa: S607
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.1)


def fill(path: Path) -> None:
    """Write until there is no space left."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65536)


@pytest.mark.needs("root")
@pytest.mark.timeout(180)
async def test_a_full_disk_is_an_error_that_says_so_and_passes(small: Path, tmp_path: Path, runtime: Runtime) -> None:
    own = {"SANDMESH_STATE_DIRECTORY": str(small)}
    async with (
        open_world(tmp_path, shape=Shape(runtime=runtime), environment=own) as world,
        BaseSandboxAsync(base_url=world.addresses()) as box,
    ):
        await box.run_ipython_cell("kept = 1")
        with pytest.raises(OSError, match="No space left"):
            fill(small / "filler")
        with pytest.raises(SandmeshError, match=r"No space left|disk is full"):
            await BaseSandboxAsync(base_url=world.addresses(), timeout=20).start()
        finding = await wait_for_finding(world, _node_in_trouble)
        assert "is full: 0 MiB of 24 are left" in finding.seen
        assert finding.fix.startswith("free space there")
        assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        (small / "filler").unlink()
        await wait_until_well(world)
        async with BaseSandboxAsync(base_url=world.addresses(), timeout=30) as other:
            assert (await other.run_ipython_cell("print(2)")).stdout == "2\n"


@pytest.mark.needs("root")
def test_a_mesh_that_starts_on_a_full_disk_says_so_and_leaves_no_half_of_a_file(small: Path) -> None:
    own = {"SANDMESH_STATE_DIRECTORY": str(small), "SANDMESH_RUNTIME_DIRECTORY": str(small / "run")}
    with pytest.raises(OSError, match="No space left"):
        fill(small / "filler")
    command = (sys.executable, "-m", "sandmeshd.cli.user", "up")
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode != 0
    assert "the disk is full: free space below" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(small.glob("meshes/*/secret*"))


@pytest.mark.needs("root")
def test_a_build_on_a_full_disk_ends_with_a_sentence_and_leaves_nothing_half_built(small: Path) -> None:
    # What is built already is not seen: all is to be built.
    subprocess.run(["umount", small / "cache"], check=True)  # noqa: S607
    with pytest.raises(OSError, match="No space left"):
        fill(small / "filler")
    own = {"SANDMESH_STATE_DIRECTORY": str(small), "SANDMESH_RUNTIME_DIRECTORY": str(small / "run")}
    command = (sys.executable, "-m", "sandmeshd.cli.user", "build", "base")
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 4
    assert "the disk is full: free space below" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in small.glob("cache/*/*") if not path.name.endswith(".lock")]


def _node_in_trouble(one: Finding) -> bool:
    # That starts fail there may be told, too.
    return one.name == "node node-1" and one.seen.startswith("the disk of")


def _store_in_trouble(one: Finding) -> bool:
    return one.name == "store" and one.health == "problem"


async def _open(world: World) -> BaseSandboxAsync:
    """Open a box, again while the mesh says that it cannot."""
    while True:
        try:
            return await BaseSandboxAsync(base_url=world.addresses(), timeout=20).start()
        except (StoreUnavailable, DeadlineExceeded):
            await asyncio.sleep(0.2)


async def _refused(world: World) -> StoreUnavailable:
    """Ask for a box until the answer is there before its caller's deadline."""
    while True:
        try:
            await BaseSandboxAsync(base_url=world.addresses(), timeout=6).start()
        except DeadlineExceeded:
            continue
        except StoreUnavailable as error:
            return error
        pytest.fail("a sandbox was made without a store")


@pytest.mark.needs("root")
@pytest.mark.timeout(300)
async def test_a_full_disk_under_the_store_is_told_and_everything_goes_on_when_there_is_room(small: Path) -> None:
    # The services' logs are on the same disk: a line that cannot be written ends nobody.
    shape, environment = Shape(services=2, store="embedded"), {"SANDMESH_STATE_DIRECTORY": str(small)}
    (small / "logs").mkdir()
    async with open_world(small / "logs", shape=shape, environment=environment) as world:
        box = await _open(world)
        await box.run_ipython_cell("kept = 1")
        with pytest.raises(OSError, match="No space left"):
            fill(small / "filler")
        finding = await wait_for_finding(world, _store_in_trouble)
        assert "it has not been able to write for" in finding.seen
        assert "is full: 0 KiB of 24 MiB are left" in finding.seen
        assert finding.fix.startswith("free space on the disk of")
        refused = await _refused(world)
        assert "cannot write: the disk of" in refused.message
        assert refused.facts["fix"].startswith("free space")
        assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(_open(world)) for _ in range(3)]
            (small / "filler").unlink()
        boxes = [box, *(task.result() for task in waiting)]
        await wait_until_well(world, "store")
        assert len({(await one.get_info())["sandbox_id"] for one in boxes}) == len(boxes)
        assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        for one in boxes:
            await one.close()
        assert not await wait_until_clean(world, idle=10)


@pytest.mark.needs("root")
async def test_a_store_is_not_started_on_a_full_disk_and_is_by_itself_when_there_is_room(small: Path) -> None:
    settings = StoreSettings(
        mesh_id="m", directory=small / "store", socket=small / "run" / "s", start_timeout_seconds=0.5
    )
    with pytest.raises(OSError, match="No space left"):
        fill(small / "filler")
    with pytest.raises(StoreUnavailable, match="is full: 0 KiB of 24 MiB are left"):
        async with open_store(settings):
            pass
    assert not (small / "store" / "server.log").exists()
    patient = settings.model_copy(update={"start_timeout_seconds": 30.0})
    opening = asyncio.create_task(_generation(patient))
    (small / "filler").unlink()
    assert await opening


@pytest.mark.needs("root")
def test_that_the_disk_of_the_store_is_nearly_full_is_told_before_it_is(small: Path) -> None:
    disk = DiskSpace(small)
    assert (disk.warning(), disk.shortage()) == ("", "")
    with (small / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (24 << 20) - (1100 << 10))
    assert "is nearly full: 1" in disk.warning()
    assert not disk.shortage()


async def _generation(settings: StoreSettings) -> str:
    async with open_store(settings) as store:
        return store.generation
