"""The lock that tells whether a mesh's process lives."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sandmesh.errors import AlreadyExists

FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_MOMENTS = (0.0, 0.01, 0.04, 0.15)


@asynccontextmanager
async def held(path: Path, what: str = "mesh") -> AsyncGenerator[None]:
    """Hold a file locked until the block ends or the process does.

    A file that this makes is locked before it has its name: one that is there and free is a dead process's.

    Raises:
        AlreadyExists: Another process holds it.
    """
    descriptor = _made(path)
    if descriptor is None:
        descriptor = os.open(path, FLAGS, 0o600)
    try:
        if not await _locked(descriptor):
            message = f"another {what} holds {path}: use it, stop it, or choose another id"
            raise AlreadyExists(message, {"lock": str(path)})
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


async def _locked(descriptor: int) -> bool:
    """Take a lock; one that is held for a moment only is `is_free` at work somewhere."""
    for pause in _MOMENTS:
        await asyncio.sleep(pause)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def holder(path: Path) -> int | None:
    """Return the process that holds a file by `held`, None if there is none.

    What is written in it may be another's: a backup that was unpacked over it has the pid of then.
    """
    try:
        if is_free(path):
            return None
        return _locking_pid(path.stat().st_ino) or int(path.read_text())
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
        return None


def _locking_pid(inode: int) -> int | None:
    """Return the process that has a lock on a file of this number, as the kernel lists it; None where it does not."""
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == str(inode) and int(words[4]) > 0:
                return int(words[4])
    return None


def is_free(path: Path) -> bool:
    """Return whether a file that `held` made has no holder.

    Raises:
        FileNotFoundError: There is no such file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _made(path: Path) -> int | None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, FLAGS, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        os.link(fresh, path)
    except FileExistsError:
        os.close(descriptor)
        return None
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()
    return descriptor
