"""Directories that are built once for all processes: complete or not there, whenever a builder is killed."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sandmeshd.runtime.user_namespaces.removal import remove_tree

MARK = ".complete"
POLL_SECONDS = 0.1
REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class BuildStep:
    """A step of a build, for a person, and a fraction from 0 to 1, negative if unknown."""

    message: str
    fraction: float


async def with_growth(
    steps: AsyncGenerator[BuildStep], folder: Path, seconds: float = REPORT_SECONDS
) -> AsyncGenerator[BuildStep]:
    """Yield the steps that fill a folder; after so many seconds without one the last again, with the folder's size."""
    last = BuildStep("starting", -1)

    async def step() -> BuildStep | None:
        return await anext(steps, None)

    following = asyncio.create_task(step())
    try:
        while True:
            done, _ = await asyncio.wait([following], timeout=seconds)
            if not done:
                size = await asyncio.to_thread(_size, folder)
                yield BuildStep(f"{last.message}, {size / (1 << 20):.1f} MiB so far", last.fraction)
                continue
            found = following.result()
            if found is None:
                return
            last = found
            yield found
            following = asyncio.create_task(step())
    finally:
        following.cancel()
        await asyncio.wait([following])
        await steps.aclose()


def _size(folder: Path) -> int:
    """Return the bytes of a folder's files, some of which may go meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - a hundred thousand files
    return total


def is_complete(target: Path) -> bool:
    """Return whether a directory was built completely."""
    return os.path.exists(f"{target}/{MARK}")  # noqa: PTH110 - asked of every template by every health check


def lock_path(target: Path) -> Path:
    """Return the file that is locked while a directory is built."""
    return target.parent / f".{target.name}.lock"


@asynccontextmanager
async def building(target: Path) -> AsyncGenerator[Path | None]:
    """Yield a directory to fill, which becomes `target` when the block succeeds; None where it is built already.

    One process builds at a time, the others wait. What a killed one left is removed first.
    """
    async with _locked(lock_path(target)):
        for stale in target.parent.glob(f".{target.name}.new-*"):
            await asyncio.to_thread(remove_tree, stale)
        if is_complete(target):
            yield None
            return
        async with _temporary(target) as fresh:
            yield fresh
            (fresh / MARK).touch()
            await asyncio.to_thread(remove_tree, target)
            fresh.rename(target)


@asynccontextmanager
async def _temporary(target: Path) -> AsyncGenerator[Path]:
    fresh = target.parent / f".{target.name}.new-{secrets.token_hex(4)}"
    fresh.mkdir()
    fresh.chmod(0o755)
    try:
        yield fresh
    finally:
        await asyncio.to_thread(remove_tree, fresh)


@asynccontextmanager
async def _locked(path: Path) -> AsyncGenerator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o711 if os.geteuid() == 0 else 0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _try_lock(descriptor):  # noqa: ASYNC110 - flock offers nothing that an event loop could wait for
            await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_being_built(target: Path) -> bool:
    """Return whether a process is building the directory."""
    try:
        descriptor = os.open(lock_path(target), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)
