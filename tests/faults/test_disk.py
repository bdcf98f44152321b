"""A full disk below the state directory: said so, and over when there is room again."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import SandmeshError
from sandmeshd.runtime.paths import default_state_directory
from tests.faults.doctoring import until_told, until_well
from tests.faults.world import open_world


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
        subprocess.run(["umount", "-R", state], check=True)  # noqa: S607
        state.rmdir()


def fill(path: Path) -> None:
    """Write until there is no space left."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65536)


@pytest.mark.needs("root")
@pytest.mark.timeout(180)
async def test_a_full_disk_is_an_error_that_says_so_and_passes(small: Path, tmp_path: Path) -> None:
    async with (
        open_world(tmp_path, environment={"SANDMESH_STATE_DIRECTORY": str(small)}) as world,
        BaseSandboxAsync(base_url=world.addresses()) as box,
    ):
        await box.run_ipython_cell("kept = 1")
        with pytest.raises(OSError, match="No space left"):
            fill(small / "filler")
        with pytest.raises(SandmeshError, match=r"No space left|disk is full"):
            await BaseSandboxAsync(base_url=world.addresses(), timeout=20).start()
        told = await until_told(world, lambda one: one.name == "node node-1")
        assert "is full" in told.seen
        assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
        (small / "filler").unlink()
        await until_well(world)
        async with BaseSandboxAsync(base_url=world.addresses(), timeout=30) as other:
            assert (await other.run_ipython_cell("print(2)")).stdout == "2\n"
