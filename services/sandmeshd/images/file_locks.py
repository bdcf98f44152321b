"""Locks of files, between all processes of a user: a holder that is killed frees them."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.05


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Return a descriptor that holds the lock until it is closed; None where another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@asynccontextmanager
async def locked(path: Path, *, shared: bool = False) -> AsyncGenerator[None]:
    """Hold a file's lock; wait for it as long as others do."""
    while (descriptor := try_lock(path, shared=shared)) is None:  # noqa: ASYNC110 - flock has nothing to wait for
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)
