"""Keeps the logs of sandboxes short: of one that grew too long the older half goes."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import structlog

from sandmeshd.drivers.node.records import Folders

log = structlog.get_logger()

LARGEST = 1 << 20
LOOK_SECONDS = 5.0


async def keep_logs_short(folders: Folders) -> None:
    """Look at every log now and then, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(_shorten_all, folders)


def _shorten_all(folders: Folders) -> None:
    for folder in folders.all():
        with suppress(FileNotFoundError):
            if shorten(folder.log, LARGEST):
                log.info("a log was shortened", sandbox_id=folder.sandbox_id)


def shorten(path: Path, largest: int) -> bool:
    """Leave the last half of what a file may hold, from a line's begin on, where it holds more; say whether it did.

    Whoever writes to it has it open for appending, and so goes on after what is left.
    """
    if path.stat().st_size <= largest:
        return False
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        begin = os.fstat(descriptor).st_size - largest // 2
        kept = os.pread(descriptor, largest // 2, begin)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, kept[kept.find(b"\n") + 1 :])
    finally:
        os.close(descriptor)
    return True
