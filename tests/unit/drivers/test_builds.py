"""Directories that are built once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from sandmeshd.drivers.node.builds import BuildStep, building, is_being_built, is_complete, with_growth

BUILDER = """
import asyncio, sys
from pathlib import Path
from sandmeshd.drivers.node.builds import building
async def main():
    async with building(Path(sys.argv[1])) as fresh:
        (fresh / "half").write_text("half")
        print("building", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def _build(target: Path, text: str = "done") -> bool:
    async with building(target) as fresh:
        if fresh is None:
            return False
        (fresh / "file").write_text(text)
        await asyncio.sleep(0)
    return True


async def _slow_steps(folder: Path, seen: asyncio.Event) -> AsyncGenerator[BuildStep]:
    yield BuildStep("fetching", 0.5)
    (folder / "wheel").write_bytes(bytes(3 << 20))
    await seen.wait()
    yield BuildStep("done", 1)


async def test_a_step_that_takes_long_is_repeated_with_the_size_so_far(folder: Path) -> None:
    seen = asyncio.Event()
    steps_seen: list[BuildStep] = []
    async with asyncio.timeout(20), aclosing(with_growth(_slow_steps(folder, seen), folder, 0.01)) as steps:
        async for step in steps:
            steps_seen.append(step)
            if step.message == "fetching, 3.0 MiB so far":
                seen.set()
    assert (steps_seen[0], steps_seen[1].fraction, steps_seen[-1]) == (
        BuildStep("fetching", 0.5),
        0.5,
        BuildStep("done", 1),
    )


async def test_of_many_builders_at_once_one_builds(folder: Path) -> None:
    built = await asyncio.gather(*(_build(folder / "cache" / "key") for _ in range(5)))
    assert sorted(built) == [False, False, False, False, True]
    assert is_complete(folder / "cache" / "key")


async def _build_twice_the_same_file(target: Path) -> None:
    async with building(target) as fresh:
        assert fresh is not None
        for _ in range(2):
            (fresh / "file").touch(exist_ok=False)


async def test_a_build_that_fails_leaves_nothing(folder: Path) -> None:
    target = folder / "cache" / "key"
    with pytest.raises(FileExistsError):
        await _build_twice_the_same_file(target)
    assert [path.name for path in target.parent.iterdir()] == [".key.lock"]


def _start(target: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BUILDER, str(target)], stdout=subprocess.PIPE)


async def test_what_a_killed_builder_left_is_swept_and_built_again(folder: Path) -> None:
    target = folder / "cache" / "key"
    with _start(target) as builder:
        assert builder.stdout is not None
        builder.stdout.readline()
        assert is_being_built(target)
        assert not is_complete(target)
        builder.send_signal(signal.SIGKILL)
    assert not is_being_built(target)
    assert await _build(target)
    assert sorted(path.name for path in target.parent.iterdir()) == [".key.lock", "key"]
    assert not (target / "half").exists()


async def test_a_directory_without_its_mark_is_built_again(folder: Path) -> None:
    target = folder / "cache" / "key"
    target.mkdir(parents=True)
    (target / "old").touch()
    assert await _build(target)
    assert not (target / "old").exists()
