"""The log of a mesh that runs in the background: a file of bounded size, with the one before it beside it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final

import structlog

from sandmeshd.runtime.beat import beat

log = structlog.get_logger()

MAX_BYTES: Final = 8 << 20
ROTATION_SECONDS: Final = 10.0


def open_log(path: Path) -> IO[bytes]:
    """Open a log to append to it."""
    if path.exists():
        rotate(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def rotate(path: Path) -> None:
    """Move what a log has to the file beside it once that is more than the most.

    It is copied, and the file cut: the processes of the mesh have it open to append to it, and go on doing so.
    """
    if path.stat().st_size <= MAX_BYTES:
        return
    previous = path.with_suffix(".log.1")
    descriptor = os.open(previous, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as copy, path.open("rb+") as current:
        shutil.copyfileobj(current, copy)
        # A kill, or a full disk, between the two steps loses nothing.
        copy.flush()
        current.truncate(0)


@asynccontextmanager
async def rotated(path: Path) -> AsyncGenerator[None]:
    """Keep a log bounded during the block, where it is this process's standard error."""
    task = asyncio.create_task(_watch(path)) if _is_own(path) else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def _is_own(path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stderr.fileno()))
    except OSError:
        return False


async def _watch(path: Path) -> None:
    while True:
        await beat(ROTATION_SECONDS)
        try:
            rotate(path)
        except OSError as error:
            # A full disk, or no free descriptor: the next round may have them.
            log.warning("the log could not be rotated", path=str(path), error=str(error))
