"""The trimming of sandboxes' logs: one that is too long loses its older half."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import structlog

from sandmeshd.drivers.node.records import Folders

log = structlog.get_logger()

MAX_BYTES = 1 << 20
INTERVAL_SECONDS = 5.0


async def trim_logs(folders: Folders) -> None:
    """Trim all logs periodically, until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        await asyncio.to_thread(_trim_all, folders)


def _trim_all(folders: Folders) -> None:
    for folder in folders.all():
        with suppress(FileNotFoundError):
            if trim(folder.log, MAX_BYTES):
                log.info("a log was trimmed", sandbox_id=folder.sandbox_id)


def trim(path: Path, largest: int) -> bool:
    """Trim a file of more than `largest` bytes to half of that, from the start of a line on; return whether it did.

    Writers have it open for appending, and so continue after the rest.
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
