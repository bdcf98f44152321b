"""The lock that tells whether a mesh's process lives."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from sandmesh.errors import AlreadyExists


@asynccontextmanager
async def held(path: Path) -> AsyncGenerator[None]:
    """Hold a file locked until the block ends or the process does.

    Raises:
        AlreadyExists: Another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        message = f"another mesh holds {path}: use it, stop it, or choose another mesh id"
        raise AlreadyExists(message, {"lock": str(path)}) from None
    os.utime(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)
