"""The trimming of sandboxes' logs: one that is too long loses its older half."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import structlog

from sandmeshd.runtime.beat import beat

log = structlog.get_logger()

MAX_BYTES = 1 << 20
INTERVAL_SECONDS = 12.0


async def trim_logs(sandboxes: Path) -> None:
    """Trim the logs of all sandboxes below a directory periodically, until cancelled."""
    while True:
        await beat(INTERVAL_SECONDS)
        await asyncio.to_thread(_trim_all, sandboxes)


def _trim_all(sandboxes: Path) -> None:
    # Of a thousand idle sandboxes this is done all the time: only a log that is too long is worth a Path.
    with os.scandir(sandboxes) as entries:
        names = [entry.path for entry in entries]
    for name in names:
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.stat(f"{name}/log").st_size > MAX_BYTES and trim(Path(name, "log"), MAX_BYTES):  # noqa: PTH116 - as above
                log.info("a log was trimmed", sandbox_id=Path(name).name)


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
